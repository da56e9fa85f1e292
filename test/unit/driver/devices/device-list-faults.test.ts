import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { pfsWithoutLacpPartner } from '../../../../src/driver/devices/device-conditions.ts';
import type { DeviceList, DeviceListOptions } from '../../../../src/driver/devices/device-list.ts';
import type { DeviceState } from '../../../../src/driver/devices/device-state.ts';
import { openDevices } from '../../../../src/driver/devices/open-devices.ts';
import { PolicyFile, type PolicySource } from '../../../../src/driver/devices/policy-file.ts';
import { SliceError } from '../../../../src/framework/resourceslice/index.ts';
import { systemClock } from '../../../../src/lib/clock.ts';
import { explain, NetdraError } from '../../../../src/lib/errors.ts';
import { textFiles } from '../../../../src/lib/text-files.ts';
import type { InventoryPolicy } from '../../../../src/node/inventory/index.ts';
import { NetlinkError, type RtnlConnection } from '../../../../src/node/netlink/index.ts';
import type { VfWanted } from '../../../../src/node/sriov/index.ts';
import { fullPipe } from '../../../doubles/full-pipe.ts';
import { ManualClock } from '../../../doubles/manual-clock.ts';
import { testDriver } from '../../../doubles/objects.ts';
import { TestNode } from '../../node/sriov/test-node.ts';
import {
  claimOf,
  first,
  logger,
  node,
  open,
  options,
  scanned,
  stored,
  tick,
  useCards,
  writePolicy,
} from './device-list-bench.ts';

useCards();

/** What the publisher says if the API server stores no taints. */
const dropped = new SliceError('slice-fields-dropped', 'x', { problems: [{ field: 'taints[0]', message: 'x' }] });

const openReal = (more: Partial<DeviceListOptions> = {}) =>
  openDevices(
    { nodeName: 'node-1', simulatePrefix: 'nsim' },
    {
      ...options(more),
      host: (more.host ?? node.connection) as unknown as RtnlConnection,
      stateDir: node.root,
    },
  );

it('DeviceList, on a node without devices to offer, logs the reason and the unmatched policy rules once', async () => {
  const path = writePolicy('pfs: [{ select: { name: ens9 } }]');
  const source = await scanned(path);
  await source.scan();
  expect(logger.messages('warn')).toEqual([
    expect.stringContaining('pfs[0] of the inventory policy selects nothing: {"name":"ens9"}; this node has enp1s0f0'),
    'no device is offered',
  ]);
  expect(logger.lines.at(-1)?.fields).toEqual({
    reason: 'devices that are excluded, each with its reason: 9; warnings: 1',
  });
});

describe('DeviceList for a card that rejects guaranteed rates', () => {
  const vf = { pciAddress: '0000:17:01.0', pfAddress: '0000:17:00.0', vfIndex: 0 };
  const wanted = { vf: { rate: { minMbps: 1_000, maxMbps: 0 } } };
  const before = { vf: { rate: { minMbps: 0, maxMbps: 0 } } };
  const rules = (more: string) => `pfs: [{ select: { driver: ice }, bandwidth: { guaranteedMbps: 1000${more} } }]`;
  const refusing = (errno: string) => {
    const link = async ({ index }: { index: number }) => node.links.find((each) => each.index === index);
    const setVf = async () => {
      throw new NetlinkError('netlink-refused', `cannot set rate (${errno})`, { errno });
    };
    return { ...node.connection, link, setVf } as unknown as RtnlConnection;
  };
  const refuse = async (source: DeviceList, asked: VfWanted = wanted) => {
    const error = await source.vfs.control.configure(vf, asked, before).catch((thrown: unknown) => thrown);
    return explain(error);
  };

  beforeEach(() => {
    node.vfInfos.ens785f0np0 = [{ vfIndex: 0, minTxRateMbps: 0, maxTxRateMbps: 0 }];
  });

  it.each([
    ['EINVAL', ', burst: true', 'pfs[0].bandwidth.burst', 'minimum rates'],
    ['EOPNOTSUPP', '', 'pfs[0].bandwidth', 'rates'],
  ])('names the policy rule after %s, and offers no VFs until it changes', async (errno, more, field, rates) => {
    const clock = new ManualClock();
    await using source = open(writePolicy(rules(more)), { clock, host: refusing(errno) });
    await source.start();
    source.watch(() => {});
    expect(source.offered()).toHaveLength(3);
    expect(await refuse(source)).toContain(
      `${field} of the inventory policy needs ${rates}, which the card does not take: change that rule, then delete the pod`,
    );
    await tick(clock, 1);
    expect(source.offered()).toEqual([]);
    const excluded = source.report.excluded.filter(({ reason }) => reason === 'rates-unsupported');
    expect(excluded).toMatchObject(Array(3).fill({ field }));
    // Another policy is tried anew.
    writePolicy(rules(', portMbps: 50000'));
    await tick(clock, 1);
    expect(source.offered()).toHaveLength(3);
  });

  it.each([
    ['EINVAL', 3],
    ['EOPNOTSUPP', 0],
  ])('after a refusal with %s, offers %i of its 3 VFs once the port has another speed', async (errno, offered) => {
    const speed = join(node.root, 'bus/pci/devices', vf.pfAddress, 'net/ens785f0np0/speed');
    const source = await scanned(writePolicy(rules(', burst: true')), { host: refusing(errno) });
    // No scan sees the change before the refusal.
    writeFileSync(speed, '10000');
    await refuse(source);
    await source.scan();
    expect(source.offered()).toEqual([]);
    writeFileSync(speed, '25000');
    await source.scan();
    expect(source.offered()).toHaveLength(offered);
  });

  it('does not blame the inventory policy in the error, and keeps offering the VFs, if the rejected maximum rate comes from the claim', async () => {
    const source = await scanned(writePolicy(rules(', burst: true')), { host: refusing('EINVAL') });
    const asked = { vf: { rate: { minMbps: 1_000, maxMbps: 3_000 } } };
    expect(await refuse(source, asked)).not.toContain('inventory policy');
    await source.scan();
    expect(source.offered()).toHaveLength(3);
  });

  it('keeps offering the VFs while the port is down, because then the card rejects even valid rates', async () => {
    node.change('ens785f0np0', { carrier: false });
    const source = await scanned(writePolicy(rules(', burst: true')), { host: refusing('EINVAL') });
    expect(await refuse(source)).toContain('pfs[0].bandwidth.burst');
    await source.scan();
    expect(source.offered()).toHaveLength(3);
  });

  it('passes on the error of the card unchanged if no policy sets rates', async () => {
    const source = await scanned(undefined, { host: refusing('EOPNOTSUPP') });
    expect(await refuse(source)).toContain('leave vf.minTxRate and vf.maxTxRate out');
  });
});

describe('DeviceList for a card whose VFs cannot be listed', () => {
  // The VF of iceTree that is bound to vfio-pci, so that its PF is asked for its MAC.
  const pf = 'ens785f0np0';

  it('offers the devices of all other cards, and logs the problem once', async () => {
    const all = (await openReal()).offered().map(({ name }) => name);
    const error = new NetlinkError('netlink-refused', 'message too long (EMSGSIZE)', { errno: 'EMSGSIZE' });
    node.vfInfoErrors[pf] = error;
    logger.lines.length = 0;
    await using source = await openReal();
    expect(source.offered().map(({ name }) => name)).toEqual(all);
    await source.scan();
    expect(logger.lines).toEqual([
      {
        level: 'warn',
        message: 'problem with a device',
        fields: { err: expect.objectContaining({ code: 'vf-state-unknown', device: '0000:17:00.0', cause: error }) },
      },
    ]);
  });

  it.each([
    ['the card', '0000:01:00.0', 'sriov_totalvfs'],
    ['the VF', first, 'vendor'],
  ])('keeps only allocated devices while %s cannot be read', async (_, pciAddress, file) => {
    const source = await scanned();
    const names = () => source.offered().map(({ name }) => name);
    expect(names()).toContain('0000-01-10-0');
    stored.claims = [claimOf({})];
    const dir = join(node.root, 'bus/pci/devices', pciAddress);
    const before = readFileSync(join(dir, file), 'utf8');
    writeFileSync(join(dir, file), '');
    // What is fixed is read again when the driver is another one.
    rmSync(join(dir, 'driver'));
    await source.scan();
    expect(names()).toContain('0000-01-10-0');
    stored.claims = [];
    await source.scan();
    expect(names()).not.toContain('0000-01-10-0');
    writeFileSync(join(dir, file), before);
    await source.scan();
    expect(names()).toContain('0000-01-10-0');
  });

  it('does not scan more often while the problem persists', async () => {
    const clock = new ManualClock();
    node.vfInfoErrors[pf] = new NetlinkError('netlink-refused', 'message too long (EMSGSIZE)', { errno: 'EMSGSIZE' });
    await using source = open(undefined, { clock, watchHost: () => ({ [Symbol.dispose]: () => {} }) });
    source.watch(() => undefined);
    await tick(clock, 14);
    expect(node.vfInfoRequests).toBeLessThanOrEqual(4);
    const before = node.vfInfoRequests;
    await tick(clock, 15);
    expect(node.vfInfoRequests).toBeGreaterThan(before);
  });
});

describe('DeviceList on a node whose devices cannot be listed', () => {
  const lost = new NetlinkError('netlink-lost', 'cannot list links: no answer within 10000 ms', { retriable: true });
  const unlisted = { code: 'devices-unlisted', retriable: true, cause: lost, hint: expect.any(String) };
  let links: RtnlConnection['links'];
  beforeEach(() => {
    links = async () => Promise.reject(lost);
  });
  const start = async (more: Partial<DeviceListOptions> = {}) => {
    const host = { ...node.connection, links: () => links() } as unknown as RtnlConnection;
    return await openReal({ host, ...more });
  };

  it('starts before the devices are listed, so that claims can be handled', async () => {
    const clock = new ManualClock();
    await using source = await start({ clock });
    expect(source.isListed).toBe(false);
    expect(logger.lines).toEqual([{ level: 'error', message: 'cannot list devices', fields: { err: lost } }]);
    let changes = 0;
    source.watch(() => changes++);
    await tick(clock, 3);
    expect([changes, source.isListed, logger.lines.length]).toEqual([0, false, 1]);
    links = async () => node.connection.links();
    await tick(clock);
    expect([changes, source.isListed]).toEqual([1, true]);
    expect(source.offered()).toHaveLength(9);
    // Each outage is logged.
    links = async () => Promise.reject(lost);
    node.change('enp1s0f0v0', { mtuBytes: 9000 });
    await tick(clock);
    expect(source.offered()).toHaveLength(9);
    expect(logger.messages('error').concat(logger.messages('warn'))).toEqual(Array(2).fill('cannot list devices'));
  });

  it('reports an empty first list, so that ResourceSlices of an earlier run are replaced', async () => {
    using empty = new TestNode([]);
    const clock = new ManualClock();
    const host = { ...empty.connection, links: () => links() } as unknown as RtnlConnection;
    await using source = await start({ clock, host, sysfsRoot: empty.root });
    let changes = 0;
    source.watch(() => changes++);
    links = async () => [];
    await vi.waitFor(() => expect(clock.sleeping()).toEqual([2_000]), { timeout: 5_000, interval: 5 });
    clock.advance(2_000);
    await vi.waitFor(() => expect(changes).toBe(1), 5_000);
  });

  it('treats no device as removed, so that claims can be prepared once the devices are listed', async () => {
    const source = await start();
    expect(() => source.findUsable('0000-01-10-0')).toThrow(expect.objectContaining(unlisted));
    expect(() => source.attributesOf(first)).toThrow(expect.objectContaining(unlisted));
    await expect(source.vfs.adminInfo({ pciAddress: first })).rejects.toMatchObject(unlisted);
    // What is not a fact of a device is there.
    expect(source.vfs.linkKey(first)).toEqual({ pciAddress: first });
    links = async () => node.connection.links();
    await source.scan();
    expect(source.findUsable('0000-01-10-0')).toMatchObject({ pciAddress: first });
    expect(source.attributesOf(first)).toMatchObject({ kind: { string: 'vf' } });
    expect(source.attributesOf('0000:ff:00.0')).toEqual({});
  });

  it('starts without devices while the policy is unknown, and lists devices once the policy is known', async () => {
    let policy: InventoryPolicy | undefined;
    const unread = new NetdraError('policy-unread', 'not known yet', { retriable: true });
    const follow: PolicySource['follow'] = async (onChange) => {
      if (policy === undefined) throw unread;
      onChange(policy, { name: 'a', generation: 1 });
      return undefined;
    };
    const source = await start({ policy: { follow } });
    expect([source.isListed, source.failure, source.policyFault]).toEqual([false, unread, undefined]);
    policy = {};
    links = async () => node.connection.links();
    await source.scan();
    expect([source.isListed, source.state.policyOrigin]).toEqual([true, { name: 'a', generation: 1 }]);
  });

  it('fails to start if the policy is invalid or an internal error occurs', async () => {
    const path = join(node.root, 'policy.yaml');
    writeFileSync(path, 'apiVersion: broken');
    await expect(start({ policy: new PolicyFile(path, textFiles) })).rejects.toMatchObject({
      code: 'policy-invalid',
      path,
    });
    links = async () => Promise.reject(new TypeError('x is not a function'));
    await expect(start()).rejects.toThrow(TypeError);
  });
});

describe('DeviceList while a kernel write hangs', () => {
  const name = '0000-01-10-0';
  const taints = [{ key: `${testDriver}/hung`, effect: 'NoSchedule' }];
  const offeredAs = (source: DeviceList) => source.offered().find((device) => device.name === name);

  /** A source with a VF whose driver is being bound. */
  async function hang() {
    await using stack = new AsyncDisposableStack();
    rmSync(join(node.root, 'bus/pci/devices', first, 'driver'));
    writeFileSync(join(node.root, 'bus/pci/devices', first, 'driver_override'), '');
    const pipe = stack.use(await fullPipe(join(node.root, 'bus/pci/drivers_probe')));
    let skippedMs = 0;
    const clock = Object.assign(Object.create(systemClock), { nowMs: () => systemClock.nowMs() + skippedMs });
    const source = stack.use(open(undefined, { clock, kernelWrites: { timeoutMs: 500, end: () => undefined } }));
    await source.scan();
    const before = source.offered();
    let changes = 0;
    source.watch(() => changes++);
    await expect(source.vfs.recreate(first)).rejects.toMatchObject({ code: 'device-hangs' });
    const owned = stack.move();
    return {
      source,
      before,
      path: pipe.path,
      changes: () => changes,
      skip(ms: number) {
        skippedMs += ms;
      },
      async release() {
        pipe.drain();
        await expect.poll(() => source.state.hungWrites, { timeout: 10_000 }).toEqual([]);
      },
      [Symbol.asyncDispose]: () => owned.disposeAsync(),
    };
  }

  it('keeps offering the device with a taint until the write returns', async () => {
    await using bench = await hang();
    const { source, before } = bench;
    expect(source.state.hungWrites).toEqual([{ device: first, path: bench.path, text: first }]);
    expect(source.counts().withheld).toEqual({ unrestored: 0, hung: 1 });
    expect(offeredAs(source)).toEqual({ ...before.find((device) => device.name === name), taints });
    expect(source.offered().filter((device) => device.taints !== undefined)).toHaveLength(1);
    expect(source.offered()).toHaveLength(before.length);
    const shown = source.view([]).devices.find((device) => device.name === name);
    expect(shown).toMatchObject({ taints, conditions: [{ condition: 'hung' }] });
    // Published at once, not after the next scan.
    const changes = bench.changes();
    expect(changes).toBeGreaterThan(0);
    await bench.release();
    expect(bench.changes()).toBeGreaterThan(changes);
    expect(source.offered()).toEqual(before);
  });

  it('keeps offering the device if it vanishes from sysfs or waits to be restored', async () => {
    await using bench = await hang();
    const { source } = bench;
    stored.unrestored = [{ device: claimOf({}).devices[0]!, reason: 'the kernel has not returned' }];
    rmSync(join(node.root, 'bus/pci/devices', first), { recursive: true });
    await source.scan();
    expect(offeredAs(source)?.taints).toEqual(taints);
    await bench.release();
    expect(offeredAs(source)?.taints).toMatchObject([{ key: `${testDriver}/unrestored` }]);
    await source.scan();
    expect(offeredAs(source)).toBeUndefined();
  });

  it('does not prepare the device for a claim, even if the claim tolerates the taint', async () => {
    await using bench = await hang();
    const { source } = bench;
    expect(() => source.findUsable(name)).toThrow(`${first}: the kernel has not returned from an earlier write to`);
    expect(source.findUsable('0000-01-10-2')).toBeDefined();
    await bench.release();
    expect(source.findUsable(name)).toMatchObject({ pciAddress: first });
  });

  it('withdraws an unallocated device if the API server stores no taints', async () => {
    await using bench = await hang();
    const { source, before } = bench;
    const changes = bench.changes();
    source.notPublished(dropped);
    expect(bench.changes()).toBeGreaterThan(changes);
    expect(source.offered()).toEqual(before.filter((device) => device.name !== name));
    stored.claims = [claimOf({})];
    await source.scan();
    expect(source.offered()).toEqual(before);
    // The API server may have been upgraded meanwhile.
    bench.skip(3_600_000);
    stored.claims = [];
    await source.scan();
    expect(offeredAs(source)?.taints).toEqual(taints);
  });
});

describe('DeviceList for a card whose link is lost', () => {
  const taint = { key: `${testDriver}/no-carrier`, effect: 'NoSchedule', timeAdded: '2026-01-01T00:00:00Z' };
  const tainted = (source: DeviceList) => source.offered().filter(({ taints }) => taints !== undefined);
  /** A list that is followed on a quiet node that reports changes. */
  async function follow(policy = '') {
    await using stack = new AsyncDisposableStack();
    const clock = new ManualClock();
    let report = () => {};
    const watchHost = (onChange: () => void): Disposable => {
      report = onChange;
      return { [Symbol.dispose]: () => {} };
    };
    const path = writePolicy(policy);
    const now = () => new Date(Date.UTC(2026, 0, 1) + clock.nowMs());
    const source = stack.use(open(path, { clock, watchHost, now }));
    let [changes, scans] = [0, 0];
    await source.start();
    source.watch(
      () => changes++,
      () => scans++,
    );
    const owned = stack.move();
    return {
      source,
      pass: (ticks = 1) => tick(clock, ticks),
      change(more: object) {
        node.change('enp1s0f0', more);
        report();
      },
      count: () => [changes, scans],
      [Symbol.asyncDispose]: () => owned.disposeAsync(),
    };
  }

  it('taints the VFs without waiting for a scan, and removes the taint ten seconds after the link returns', async () => {
    await using bench = await follow();
    const { source, pass, change, count } = bench;
    await pass(3);
    const before = source.offered();
    const [changes = 0, scans] = count();
    change({ carrier: false });
    await pass();
    // A scan is due after ten seconds only.
    expect(count()).toEqual([changes + 1, scans]);
    expect(tainted(source)).toHaveLength(3);
    expect(tainted(source)[0]).toMatchObject({
      name: '0000-01-10-0',
      taints: [{ ...taint, timeAdded: '2026-01-01T00:00:08Z' }],
    });
    expect(source.counts().withheld).toEqual({ unrestored: 0, hung: 0, 'no-carrier': 3 });
    expect(source.counts().inCondition).toMatchObject({ 'no-carrier': 3, hung: 0, unrestored: 0 });
    const [pf] = source.counts().pfs;
    const vfs = { offered: 3, used: 0, free: 0, withheld: 3, hung: 0 };
    expect(pf).toEqual({ pf: 'enp1s0f0', pciAddress: '0000:01:00.0', hasCarrier: false, vfs });
    expect(source.findUsable('0000-01-10-0')).toBeDefined();
    change({ carrier: true });
    await pass(5);
    expect(tainted(source)).toHaveLength(3);
    await pass(2);
    expect(source.offered()).toEqual(before);
    expect(source.counts().pfs[0]).toEqual({ ...pf, hasCarrier: true, vfs: { ...vfs, free: 3, withheld: 0 } });
    expect(count()[0]).toBe(changes + 2);
  });

  it.each([
    ['no-carrier', 'noCarrier', { carrier: false }, 'has no carrier: check its cable'],
    ['pf-down', 'pfDown', { up: false, carrier: false }, 'is administratively down, .* set its interface up'],
  ])("applies the policy's setting for %s: another taint effect, or no taint", async (name, field, link, text) => {
    node.change('enp1s0f0', link);
    await using evicting = await follow(`taints: { ${field}: NoExecute }`);
    const key = `${testDriver}/${name}`;
    expect(tainted(evicting.source)[0]?.taints).toEqual([{ ...taint, key, effect: 'NoExecute' }]);
    stored.conditions = [];
    await using silent = await follow(`taints: { ${field}: None }`);
    const { source } = silent;
    expect(tainted(source)).toEqual([]);
    expect(source.counts().withheld).toEqual({ unrestored: 0, hung: 0 });
    const message = expect.stringMatching(new RegExp(`^PF enp1s0f0 \\(0000:01:00.0\\) ${text}`));
    expect(source.unhealthy().get('0000-01-10-0')).toMatchObject([{ name, message }]);
    expect(source.cardConditions()[0]?.message).toMatch(/Its devices stay available to new claims/);
    source.notPublished(dropped);
    expect(source.offered()).toHaveLength(9);
  });

  it('withdraws unallocated VFs if the API server stores no taints', async () => {
    node.change('enp1s0f0', { carrier: false });
    await using bench = await follow();
    const { source } = bench;
    stored.claims = [claimOf({})];
    source.notPublished(dropped);
    expect(
      source
        .offered()
        .map(({ name }) => name)
        .filter((name) => /^0000-01-10-[024]$/.test(name)),
    ).toEqual(['0000-01-10-0']);
    expect(tainted(source)).toEqual([]);
    expect(source.cardConditions()[0]?.message).toMatch(/Its devices are withheld until it recovers\.$/);
  });

  it('polls for the loss of an LACP partner, which the kernel does not report', async () => {
    node.change('enp1s0f0', { lacpPartnerInSync: true });
    await using bench = await follow('health: { lacpRelay: true }');
    const { source } = bench;
    const silenced = ({ policy, conditions }: DeviceState) => pfsWithoutLacpPartner(policy, conditions);
    await bench.pass(3);
    expect(silenced(source.state)).toEqual(new Set());
    node.change('enp1s0f0', { lacpPartnerInSync: false });
    await bench.pass();
    expect(tainted(source)[0]?.taints).toMatchObject([{ key: `${testDriver}/lacp-partner-lost` }]);
    expect(silenced(source.state)).toEqual(new Set(['0000:01:00.0']));
    expect(source.cardConditions()[0]?.message).toMatch(
      /VFs of claims with link state auto have no link until then\.$/,
    );
    await using other = await follow();
    expect(silenced(other.source.state)).toEqual(new Set());
  });
});
