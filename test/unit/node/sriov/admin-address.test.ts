import { describe, expect, it } from 'vitest';
import { DriverBinding, type VfWanted } from '../../../../src/node/sriov/index.ts';
import { type SriovCard, vfAddress } from '../../../doubles/sriov-card.ts';
import { openVf } from './vf-bench.ts';

const claimed = '02:aa:00:00:00:01';

interface Before {
  refuses?: 'once' | 'always';
  /** Driver of the VF before the claim. */
  driver?: string;
  /** What the pod does. */
  choose?(card: SriovCard): Promise<void>;
}

/** A VF of a PF that refuses to remove an administrative MAC, after a claim. */
async function afterClaim(wanted: VfWanted, { refuses = 'always', driver, choose }: Before = {}) {
  const kept: string[] = [];
  const bench = openVf({ refusesNoAddress: refuses }, { onAddressKept: (...args) => kept.push(args.join(' ')) });
  const { card, hardware, address } = bench;
  if (driver !== undefined) await new DriverBinding(card.root, card.write).bind(vfAddress(0), driver);
  const state = card.state(0);
  const before = await hardware.snapshot(address, { wanted });
  await hardware.configure(address, wanted, before);
  await choose?.(card);
  const restore = () => hardware.restore(address, before, { changed: wanted.vf ?? {} });
  await restore();
  return { card, hardware, kept, restore, state };
}

describe('a PF that refuses to remove the MAC of a VF', () => {
  it.each<VfWanted>([
    { vf: { hardwareAddress: claimed } },
    { driver: 'vfio-pci' },
    { driver: 'vfio-pci', vf: { hardwareAddress: claimed } },
  ])("keeps the VF's own MAC as its administrative MAC after %j, and the error says so", async (wanted) => {
    const { card, kept, restore, state } = await afterClaim(wanted);
    const { hardwareAddress } = state.link;
    expect(card.state(0)).toEqual({ ...state, info: { ...state.info, hardwareAddress } });
    expect(kept).toEqual([`${vfAddress(0)} ${hardwareAddress}`]);
    await restore();
    expect(card.info(0)?.hardwareAddress).toBe(hardwareAddress);
  });

  it('restores the VF if the claim set the MAC that the VF already had', async () => {
    const own = openVf().card.link(0)!.hardwareAddress;
    const { card, state } = await afterClaim({ driver: 'vfio-pci', vf: { hardwareAddress: own } });
    expect(card.state(0)).toEqual({ ...state, info: { ...state.info, hardwareAddress: own } });
  });

  it.each([
    ['of the claim', claimed],
    ['that the pod chose', '02:bb:00:00:00:01'],
  ])('gives a VF that had no interface a new MAC instead of the MAC %s', async (_whose, hardwareAddress) => {
    const choose = async ({ host }: SriovCard) => {
      const pf = (await host.links()).find(({ name }) => name === 'pf0')!;
      await host.setVf(pf.index, 0, { hardwareAddress });
    };
    const { card, kept } = await afterClaim({ vf: { hardwareAddress: claimed } }, { driver: 'vfio-pci', choose });
    const given = card.info(0)?.hardwareAddress;
    expect(given).toMatch(/^.[26ae]:/);
    expect(given).not.toBe(hardwareAddress);
    expect(kept).toEqual([`${vfAddress(0)} ${given}`]);
  });
});

it('restoring the MAC of a VF removes the administrative MAC of a claim if its PF refuses that only while it resets the VF', async () => {
  const { card, kept } = await afterClaim(
    { vf: { hardwareAddress: claimed } },
    { refuses: 'once', driver: 'vfio-pci' },
  );
  expect(card.info(0)?.hardwareAddress).toBeUndefined();
  expect(kept).toEqual([]);
});
