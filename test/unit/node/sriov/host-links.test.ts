import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { DriverBinding, HostLinks } from '../../../../src/node/sriov/index.ts';
import { ManualClock } from '../../../doubles/manual-clock.ts';
import { SriovCard, vfAddress } from '../../../doubles/sriov-card.ts';

const vf = vfAddress(0);

/** Time passes only by sleeping. */
class SleepingClock extends ManualClock {
  override sleep(ms: number): Promise<void> {
    const slept = super.sleep(ms);
    this.advance(ms);
    return slept;
  }
}

let card: SriovCard;
let clock: SleepingClock;
let links: HostLinks;
beforeEach(() => {
  card = new SriovCard();
  clock = new SleepingClock();
  links = new HostLinks({ binding: new DriverBinding(card.root, card.write), host: card.host, clock });
});
afterEach(() => card[Symbol.dispose]());

const names = async () => (await card.host.links()).map(({ parentDevice }) => parentDevice);

/** Counts the requests for all links of the host. */
function countDumps(): { dumps: number } {
  const { links: list } = card.host;
  const count = { dumps: 0 };
  card.host.links = async (...of) => {
    count.dumps += 1;
    return await list(...of);
  };
  return count;
}

describe('HostLinks.recreate', () => {
  it('lists the links of the host only once in each wait while sysfs shows no interface', async () => {
    card.silentProbes.set('igbvf', 1);
    await new DriverBinding(card.root, card.write).rebind(vf);
    card.silentProbes.set('igbvf', 1);
    const count = countDumps();
    await expect(links.recreate(vf)).rejects.toMatchObject({ code: 'vf-missing' });
    expect(clock.nowMs()).toBeGreaterThanOrEqual(8_000);
    expect(count.dumps).toBe(2);
  });

  it('lists the links of the host less and less often while an interface stays in another network namespace', async () => {
    card.moveAway(0);
    const count = countDumps();
    await expect(links.ensure(vf, 3_000)).rejects.toMatchObject({ code: 'vf-missing' });
    expect(clock.nowMs()).toBeGreaterThanOrEqual(3_000);
    expect(count.dumps).toBeLessThan(25);
  });

  it('rebinds the driver of a VF whose interface stays in another network namespace', async () => {
    card.moveAway(0);
    expect(await names()).not.toContain(vf);
    expect(await links.recreate(vf)).toBe(true);
    expect(await names()).toContain(vf);
    expect(card.log).toEqual([`unbind ${vf}`, `bind ${vf} igbvf`]);
  });

  it('does not rebind a VF whose interface is on the host or returns there in time', async () => {
    expect(await links.recreate(vf)).toBe(false);
    card.moveAway(0);
    const { links: list } = card.host;
    card.host.links = async () => {
      if (clock.nowMs() > 1_000) card.comeBack(0);
      return await list();
    };
    expect(await links.recreate(vf)).toBe(false);
    expect(card.log).toEqual([]);
  });

  it('completes an earlier attempt that failed midway', async () => {
    card.moveAway(0);
    card.failingDrivers.add('igbvf');
    await expect(links.recreate(vf)).rejects.toMatchObject({ code: 'binding-failed', device: vf });
    expect(card.driverOf(vf)).toBeUndefined();
    card.failingDrivers.clear();
    expect(await links.recreate(vf)).toBe(true);
    expect(await names()).toContain(vf);
    expect(card.driverOf(vf)).toBe('igbvf');
  });

  it('does not rebind a removed VF, or a VF in user space', async () => {
    await new DriverBinding(card.root, card.write).bind(vf, 'vfio-pci');
    expect(await links.recreate(vf)).toBe(false);
    expect(card.driverOf(vf)).toBe('vfio-pci');
    card.switchOff();
    expect(await links.recreate(vf)).toBe(false);
  });

  it('does not unbind a PF with VFs', async () => {
    card.writeText(`bus/pci/devices/${vf}/sriov_numvfs`, '4\n');
    card.moveAway(0);
    await expect(links.recreate(vf)).rejects.toMatchObject({ code: 'function-in-use', device: vf });
    expect(card.log).toEqual([]);
  });
});

it('HostLinks.isUnbound detects a VF without a driver', async () => {
  expect(await links.isUnbound(vf)).toBe(false);
  card.failingDrivers.add('igbvf');
  await new DriverBinding(card.root, card.write).rebind(vf).catch(() => undefined);
  expect(await links.isUnbound(vf)).toBe(true);
  card.switchOff();
  expect(await links.isUnbound(vf)).toBe(false);
});

describe('HostLinks.ensure', () => {
  it('waits for the interface as long as requested', async () => {
    card.moveAway(0);
    await links.ensure(vf, 0).catch(() => undefined);
    expect(clock.nowMs()).toBe(0);
    await links.ensure(vf, 200).catch(() => undefined);
    expect(clock.nowMs()).toBe(200);
  });

  it('never takes an interface out of another network namespace', async () => {
    card.moveAway(0);
    await expect(links.ensure(vf)).rejects.toMatchObject({ code: 'vf-missing', device: vf, retriable: true });
    expect(card.log).toEqual([]);
  });
});
