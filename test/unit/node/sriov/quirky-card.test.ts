import fc from 'fast-check';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { NetdraError } from '../../../../src/lib/errors.ts';
import type { VfHardware, VfSnapshot, VfWanted } from '../../../../src/node/sriov/index.ts';
import { VfProperties } from '../../../../src/node/sriov/vf-properties.ts';
import { allQuirks, type Habits, passingQuirks, type Quirks, QuirkyCard } from '../../../doubles/quirky-card.ts';
import { type SriovCardOptions, vfAddress } from '../../../doubles/sriov-card.ts';

/** Runs of each property; `npm run test:all` has more of them. */
const runs = Number(process.env.NETDRA_QUIRK_RUNS ?? 10);
/** The kubelet waits for two minutes. */
const callMs = 60_000;

const vlans = fc.record({ id: fc.integer({ min: 0, max: 4094 }), priority: fc.integer({ min: 0, max: 7 }) });
const wishes: fc.Arbitrary<VfWanted> = fc.record(
  {
    driver: fc.constantFrom('default', 'igbvf', 'vfio-pci'),
    vf: fc.record(
      {
        hardwareAddress: fc.constant('02:aa:00:00:00:01'),
        vlan: vlans,
        spoofCheck: fc.boolean(),
        trust: fc.boolean(),
        linkState: fc.constantFrom('auto' as const, 'enable' as const, 'disable' as const),
        rate: fc.record({ maxMbps: fc.integer({ min: 1, max: 1_000 }) }),
      },
      { requiredKeys: [] },
    ),
  },
  { requiredKeys: [] },
);
const cards: fc.Arbitrary<SriovCardOptions> = fc.record({
  tellsOwnAddresses: fc.boolean(),
  info: fc.record(
    {
      hardwareAddress: fc.constant('02:bb:00:00:00:09'),
      vlan: vlans.filter(({ id }) => id > 0).map((vlan) => ({ ...vlan, protocol: '802.1q' as const })),
      spoofCheck: fc.constant(true),
      trust: fc.boolean(),
      linkState: fc.constant('auto' as const),
      minTxRateMbps: fc.constant(0),
      maxTxRateMbps: fc.constant(0),
    },
    { requiredKeys: ['spoofCheck', 'trust', 'linkState', 'minTxRateMbps', 'maxTxRateMbps'] },
  ),
});
/** What a pod and the end of its network namespace do to the interface. */
const tenants = fc.record({ mtuBytes: fc.constantFrom(1500, 9000), up: fc.boolean(), name: fc.constant('net1') });

interface Case {
  quirks: Quirks;
  options: SriovCardOptions;
  wanted: VfWanted;
  tenant: { mtuBytes: number; up: boolean; name: string };
}

/** Every failure says which device it is about, and whether to try again. */
function assertExplained(error: unknown): void {
  if (!(error instanceof NetdraError)) throw error;
  expect(error, error.message).toMatchObject({ device: vfAddress(0) });
}

/** Whether it is as requested in the card itself, whatever the card reports. */
function assertEffect({ card }: QuirkyCard, { driver, vf = {} }: VfWanted): void {
  const { hardwareAddress, vlan, rate, ...plain } = vf;
  const is = card.state(0);
  expect(is.driver).toBe(driver === 'default' || driver === undefined ? 'igbvf' : driver);
  expect(is.info).toMatchObject(plain);
  if (hardwareAddress !== undefined) expect(is.info.hardwareAddress).toBe(hardwareAddress);
  if (hardwareAddress !== undefined && is.link.name !== undefined)
    expect(is.link.hardwareAddress).toBe(hardwareAddress);
  if (vlan !== undefined) expect(is.info.vlan ?? { id: 0 }).toMatchObject(vlan.id === 0 ? { id: 0 } : vlan);
  if (rate !== undefined) expect(is.info.maxTxRateMbps).toBe(rate.maxMbps);
}

/** One tenant after the other; each finds the VF as it was before all of them. */
async function useTwice({ quirks, options, wanted, tenant }: Case, mayFail: boolean, habits?: Habits): Promise<void> {
  using quirky = new QuirkyCard(quirks, options, habits);
  const { card, hardware, clock } = quirky;
  const original = card.state(0);
  const neighbour = card.state(1);
  /** @returns whether it was done */
  const call = async (task: (hardware: VfHardware) => Promise<void>): Promise<boolean> => {
    const startedAtMs = clock.nowMs();
    try {
      await task(hardware);
      return true;
    } catch (error) {
      if (!mayFail) throw error;
      assertExplained(error);
      return false;
    } finally {
      expect(clock.nowMs() - startedAtMs).toBeLessThan(callMs);
    }
  };
  let before: VfSnapshot | undefined;
  const address = card.address(0);
  const prepare = async () => {
    before ??= await hardware.snapshot(address, { wanted, byOthers: true });
    await hardware.configure(address, wanted, before);
  };
  if (await call(prepare)) assertEffect(quirky, wanted);
  if (before === undefined) expect(card.state(0)).toEqual(original);
  const link = card.link(0);
  if (before !== undefined && link !== undefined) Object.assign(link, tenant);
  const restore = async () => {
    if (before !== undefined) await hardware.restore(address, before, { changed: wanted.vf ?? {} });
  };
  if (await call(restore)) expect(card.state(0)).toEqual(original);

  await quirky.calmDown();
  await restore();
  expect(card.state(0)).toEqual(original);
  before = undefined;
  await prepare();
  assertEffect(quirky, wanted);
  await restore();
  expect(card.state(0)).toEqual(original);
  expect(card.state(1)).toEqual(neighbour);
}

const cases = (quirks: fc.Arbitrary<Quirks>) => fc.record({ quirks, options: cards, wanted: wishes, tenant: tenants });

interface Rules {
  quirks: fc.Arbitrary<Quirks>;
  /** Whether calls may fail, as long as they say so and nothing is lost. */
  mayFail: boolean;
}

const passing: Rules = { quirks: passingQuirks, mayFail: false };
const lasting: Rules = { quirks: allQuirks, mayFail: true };

async function assertRules({ quirks, mayFail }: Rules, parameters: fc.Parameters<[Case]>, habits?: Habits) {
  await fc.assert(
    fc.asyncProperty(cases(quirks), (each) => useTwice(each, mayFail, habits)),
    parameters,
  );
}

/** Kinds of faults that drivers for such cards have had: docs/hardware.md. */
const planted: { kind: string; shownBy: Rules; plant: () => Habits | undefined }[] = [
  {
    kind: 'settings that the PF does not report are ignored',
    shownBy: lasting,
    plant: () => {
      const { read, set } = VfProperties.prototype;
      vi.spyOn(VfProperties.prototype, 'set').mockImplementation(function (this: VfProperties, address, wanted) {
        return set.call(this, address, wanted);
      });
      vi.spyOn(VfProperties.prototype, 'read').mockImplementation(function (this: VfProperties, ...args) {
        return read.apply(this, args).catch(() => ({}));
      });
      vi.spyOn(VfProperties.prototype, 'assertComplete').mockResolvedValue();
      vi.spyOn(VfProperties.prototype, 'assertAddressKnown').mockResolvedValue();
      vi.spyOn(VfProperties.prototype, 'assertRestored').mockResolvedValue();
      return undefined;
    },
  },
  {
    kind: 'settings that the PF accepts without effect count as applied',
    shownBy: lasting,
    plant: () => {
      const { set } = VfProperties.prototype;
      vi.spyOn(VfProperties.prototype, 'set').mockImplementation(function (this: VfProperties, ...args) {
        return set.apply(this, args).catch((error: unknown) => {
          if ((error as { cause?: { code?: string } }).cause?.code !== 'no-effect') throw error;
          return true;
        });
      });
      return undefined;
    },
  },
  { kind: 'netdra waits for nothing', shownBy: passing, plant: () => ({ hasPatience: false }) },
  {
    kind: 'a temporary rejection is not retried',
    shownBy: passing,
    plant: () => ({ repeat: (_clock, _isBusy, request) => request() }),
  },
];

describe('a card with quirks', { timeout: 400 * runs + 15_000 }, () => {
  afterEach(() => void vi.restoreAllMocks());

  it('is configured and restored at the first attempt if its quirks last at most two seconds', () =>
    assertRules(passing, { numRuns: runs }));

  it('is restored by a later attempt if its quirks last longer; until then it is reported as not restored', () =>
    assertRules(lasting, { numRuns: runs }));

  it.each(planted)('is found to break a rule if this fault is planted: $kind', async ({ shownBy, plant }) => {
    const search = assertRules(shownBy, { seed: 2, numRuns: 100, endOnFailure: true }, plant());
    await expect(search).rejects.toThrow('Property failed');
  });
});
