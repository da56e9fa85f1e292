import { claimKey, claimName } from '../../framework/metadata/index.ts';
import type { Clock } from '../../lib/clock.ts';
import { defined } from '../../lib/defined.ts';
import { explain, NetdraError } from '../../lib/errors.ts';
import { failuresOf } from '../../lib/failures-of.ts';
import { KeyedMutex, type Locks } from '../../lib/keyed-mutex.ts';
import type { Logger } from '../../lib/logger.ts';
import type { VfChange } from '../../node/netlink/index.ts';
import {
  complete,
  isRounded,
  propertiesOf,
  SriovError,
  UnknownVfStateError,
  type VfPropertiesWanted,
} from '../../node/sriov/index.ts';
import { isUserSpace, StateError, type StoredClaim, type StoredDevice } from '../model/index.ts';
import type { StoredClaims } from '../state/index.ts';
import type { VfControl } from '../vf/index.ts';
import { describeDrift, isRestorable, keptBy, type PfDrift, pfDriftOf } from './drift.ts';
import { combined, type DriftState } from './drift-record.ts';
import { FailedRestores } from './failed-restores.ts';

/** Number of restores within a time, ms, after which another program is assumed to write the settings. */
const contested = { times: 3, withinMs: 600_000 };
/** How long a VF may be missing from the list of its PF during a reset of the card, ms. */
const resetMs = 10_000;
/**
 * Number of VFs of a PF that are restored at once. Each restore reads the PF's whole list, and after a reset of the card all
 * VFs need one.
 */
const restoresAtOnce = 4;

export interface PfDriftOptions {
  store: StoredClaims;
  control: VfControl;
  locks: Locks;
  /** Called when lost settings of a VF were restored. */
  onRestored: (claim: StoredClaim, device: StoredDevice, drifts: readonly PfDrift[]) => void;
  /** Called for each compared VF. */
  onCompared: (claim: StoredClaim, device: StoredDevice, found: PfComparison) => void;
  clock: Clock;
  logger: Logger;
}

/** Settings of a VF that differ from class and claim, in two groups; a group without settings is absent. */
export interface PfComparison {
  /** Settings that the PF has lost, or may have lost: netdra restores them. */
  lost?: DriftState;
  /** Settings that another component, or the pod, may have chosen: netdra leaves them. */
  others?: DriftState;
}

interface KnownVf {
  failed: FailedRestores;
  /** Times of the last restores, ms. */
  restoredAtMs: number[];
  /** Time since which the PF does not report the VF, ms. */
  unknownSinceMs?: number;
  /**
   * Deviations that are accepted since the card cannot do better: rounded rates, and a MAC address that the PF cannot set. By
   * setting, with the value that was found.
   */
  accepted: Map<string, string>;
  /** Drift of a VF in user space that no longer has its driver. */
  driver?: DriftState;
  /** Settings that another program seems to change. */
  contest?: DriftState;
}

type PodVf = { claim: StoredClaim; device: StoredDevice };

/**
 * Compares the PFs' settings for VFs in pods with class and claim, and restores them: after a reset of the card, or a change
 * by another program, a pod might be in another network, or without limits. A round makes one request for each PF, and
 * further requests for VFs whose settings differ. Decision: docs/decisions/0046-settings-are-kept.md
 */
export class PfDriftSweep {
  readonly #options: PfDriftOptions;
  /** Known VFs, by claim and PCI address. */
  readonly #known = new Map<string, KnownVf>();
  /**
   * Limit of restores at a time, by PF. Taken after the lock of the claim, so that VFs that wait for that lock do not count.
   */
  readonly #turns = new KeyedMutex(restoresAtOnce);

  constructor(options: PfDriftOptions) {
    this.#options = options;
  }

  /** Runs one round. Does not wait for VFs that are being reset. @throws StateError `store-unusable` */
  async sweep(signal: AbortSignal): Promise<void> {
    const vfs = podVfs(this.#options.store.claims());
    const keys = new Set(vfs.map(keyOf));
    for (const key of this.#known.keys()) if (!keys.has(key)) this.#known.delete(key);
    for (const vf of vfs.filter(({ device }) => isUserSpace(device))) {
      if (signal.aborted) return;
      await this.#compareDriver(vf);
    }
    const kept = vfs.filter(({ device }) => propertiesOf(keptBy(device)).length > 0);
    const byPf = Map.groupBy(kept, ({ device }) => device.pfAddress ?? '');
    await allOf([...byPf].map(([pf, ofPf]) => this.#sweepPf(pf, ofPf, signal)));
  }

  /**
   * Checks whether a VF in user space still has the driver that it was prepared with. Does not bind the driver again: the pod
   * would not get the VF back.
   */
  async #compareDriver(vf: PodVf): Promise<void> {
    const { device } = vf;
    const wanted = device.access?.driver ?? device.config.driver;
    const known = this.#of(vf);
    delete known.driver;
    if (wanted === undefined) return;
    const found = await this.#driverOf(device);
    if (found !== wanted)
      known.driver = {
        drifts: [{ setting: 'driver', wanted, found }],
        reason:
          'another program has bound the VF to this driver, or the card was reset, and the pod has lost the VF: delete the pod, so that the VF is prepared anew',
      };
    if (propertiesOf(keptBy(device)).length === 0) this.#compared(vf, {});
  }

  async #driverOf(device: StoredDevice): Promise<string> {
    try {
      return (await this.#options.control.access(device, { vhost: false, rdma: false })).driver ?? 'none';
    } catch (error) {
      if (!(error instanceof SriovError)) throw error;
      return `unusable (${explain(error)})`;
    }
  }

  /** Reports the differences of a VF, including its driver. */
  #compared(vf: PodVf, { lost, others }: PfComparison): void {
    const { driver } = this.#of(vf);
    this.#options.onCompared(vf.claim, vf.device, defined({ lost: combined(driver, lost), others }));
  }

  async #sweepPf(pfAddress: string, vfs: readonly PodVf[], signal: AbortSignal): Promise<void> {
    let settings: ReadonlyMap<number, VfChange>;
    try {
      settings = await this.#options.control.settingsOf(pfAddress);
    } catch (error) {
      if (!(error instanceof UnknownVfStateError)) throw error;
      for (const vf of vfs) this.#isUnknown(vf, explain(error));
      return;
    }
    // The VFs are compared in parallel: other work may hold the lock of a claim for a minute, and VFs of other tenants must
    // not wait for it.
    await allOf(
      vfs.map(async (vf) => {
        const now = settings.get(vf.device.vfIndex ?? -1);
        if (now === undefined) return this.#isUnknown(vf, `PF ${pfAddress} does not report VF ${vf.device.vfIndex}`);
        delete this.#of(vf).unknownSinceMs;
        await this.#compare(vf, now, signal);
      }),
    );
  }

  async #compare({ claim: { identity }, device }: PodVf, now: VfChange, signal: AbortSignal): Promise<void> {
    const { store, locks } = this.#options;
    const { pciAddress, pfAddress = '', vfIndex = -1 } = device;
    const find = (): PodVf | undefined =>
      podVfs(store.claims().filter((each) => each.identity.uid === identity.uid)).find(
        (each) => each.device.pciAddress === pciAddress,
      );
    const vf = find();
    if (vf === undefined) return;
    if (this.#driftOf(vf, now).length === 0) {
      this.#compared(vf, defined({ lost: this.#lostOf(vf, [], []) }));
      return;
    }
    // The comparison is repeated with the claim's lock held: the claim may be unprepared, or move to another pod, at the same
    // time, and the first reading may be older than a change by netdra.
    const setAgain = async () => {
      const settings = (await this.#options.control.settingsOf(pfAddress)).get(vfIndex);
      const current = find();
      if (current !== undefined && settings !== undefined) await this.#setAgain(current, settings);
    };
    const inTurn = () => this.#turns.run(pfAddress, setAgain, signal);
    try {
      await locks.run(claimKey(identity), inTurn, signal);
    } catch (error) {
      // The card is being reset. The next round shows whether the drift lasts.
      if (!(error instanceof UnknownVfStateError)) throw error;
    }
  }

  #driftOf(vf: PodVf, now: VfChange): PfDrift[] {
    const { accepted } = this.#of(vf);
    return pfDriftOf(vf.device, now).filter(({ setting, found }) => accepted.get(setting) !== found);
  }

  async #setAgain(vf: PodVf, now: VfChange): Promise<void> {
    const { device } = vf;
    const drifts = this.#driftOf(vf, now);
    const lost = drifts.filter((drift) => isRestorable(device, drift, now));
    const left = drifts.filter((drift) => !lost.includes(drift));
    const nowMs = this.#options.clock.nowMs();
    const due = lost.filter((drift) => this.#of(vf).failed.isDue(drift, nowMs));
    const paused = lost.filter((drift) => !due.includes(drift));
    const { restored, failed } = due.length === 0 ? { restored: [], failed: [] } : await this.#attempt(vf, due);
    const others = left.length === 0 ? undefined : { drifts: left, reason: leftReason(device) };
    this.#compared(vf, defined({ lost: this.#lostOf(vf, [...paused, ...failed], restored), others }));
  }

  /** Restores settings of a VF. @returns the settings that were restored, and those that could not be restored */
  async #attempt(vf: PodVf, due: readonly PfDrift[]): Promise<{ restored: PfDrift[]; failed: PfDrift[] }> {
    const { control, clock, logger, onRestored } = this.#options;
    const { claim, device } = vf;
    const known = this.#of(vf);
    const kept = keptBy(device);
    const wanted: VfPropertiesWanted = Object.fromEntries(due.map(({ setting }) => [setting, kept[setting]]));
    let failed: PfDrift[] = [];
    let restored = [...due];
    try {
      await control.setAgain(device, wanted, device.before ?? { vf: {} });
    } catch (error) {
      if (!(error instanceof NetdraError) || error instanceof StateError) throw error;
      // The PF may have accepted some of the settings.
      const now = (await control.settingsOf(device.pfAddress ?? '')).get(device.vfIndex ?? -1) ?? {};
      failed = this.#driftOf(vf, now).filter(({ setting }) => setting in wanted);
      restored = due.filter((drift) => !isAmong(failed, drift));
      const given = isRounding(error, wanted, failed, now) ? failed[0] : unpinnable(error, device, failed);
      if (given !== undefined) {
        known.accepted.set(given.setting, given.found);
        failed = failed.filter((drift) => drift !== given);
      }
      known.failed.add(failed, clock.nowMs(), `restoring it failed: ${explain(error)}`);
    }
    if (restored.length > 0) {
      const log = { claim: claimName(claim.identity), device: device.name, drift: describeDrift(restored) };
      logger.warn(log, 'restored settings that a VF in a pod had lost');
      known.restoredAtMs.push(clock.nowMs());
      onRestored(claim, device, restored);
    }
    return { restored, failed };
  }

  /**
   * Returns the settings of a VF that are lost, or that another program seems to change.
   * @param lost settings that could not be restored
   * @param restored settings that were just restored
   */
  #lostOf(vf: PodVf, lost: readonly PfDrift[], restored: readonly PfDrift[]): DriftState | undefined {
    const known = this.#of(vf);
    known.failed.retain(lost);
    const sinceMs = this.#options.clock.nowMs() - contested.withinMs;
    known.restoredAtMs = known.restoredAtMs.filter((atMs) => atMs > sinceMs);
    if (known.restoredAtMs.length < contested.times) delete known.contest;
    // Between two restores, the state is kept as it is.
    else if (restored.length > 0)
      known.contest = { drifts: restored, reason: 'another program keeps changing this setting: stop that program' };
    return combined(known.failed.stateOf(lost), known.contest);
  }

  #isUnknown({ claim, device }: PodVf, reason: string): void {
    const known = this.#of({ claim, device });
    const nowMs = this.#options.clock.nowMs();
    known.unknownSinceMs ??= nowMs;
    if (nowMs - known.unknownSinceMs < resetMs) return;
    this.#compared({ claim, device }, { lost: { drifts: pfDriftOf(device, {}), reason } });
  }

  #of(vf: PodVf): KnownVf {
    const key = keyOf(vf);
    const known = this.#known.get(key) ?? { failed: new FailedRestores(), restoredAtMs: [], accepted: new Map() };
    this.#known.set(key, known);
    return known;
  }
}

/** Waits for all tasks. @throws the first failure, after all tasks have ended */
async function allOf(tasks: readonly Promise<void>[]): Promise<void> {
  const [failure] = await failuresOf(tasks);
  if (failure !== undefined) throw failure;
}

/** Lists VFs in pods whose PF has settings to keep for them, or that are in user space. */
function podVfs(claims: readonly StoredClaim[]): PodVf[] {
  return claims.flatMap((claim) =>
    claim.state !== 'prepared'
      ? []
      : claim.devices.flatMap((device) => {
          const isCompared = isUserSpace(device) || propertiesOf(keptBy(device)).length > 0;
          return device.attachment !== undefined && isCompared ? [{ claim, device }] : [];
        }),
  );
}

function keyOf({ claim, device }: PodVf): string {
  return `${claim.identity.uid}/${device.pciAddress}`;
}

function leftReason({ config: { attach = 'netlink' } }: StoredDevice): string {
  return attach === 'netlink'
    ? 'the VF is trusted, so its pod may choose the MAC'
    : `with attach ${attach}, netdra leaves the setting as it is: another component may have made it`;
}

function isAmong(drifts: readonly PfDrift[], { setting }: PfDrift): boolean {
  return drifts.some((other) => other.setting === setting);
}

/** Returns whether the only failure is a rounded rate: setting it again would give the same rate. */
function isRounding(
  error: NetdraError,
  wanted: VfPropertiesWanted,
  failed: readonly PfDrift[],
  now: VfChange,
): boolean {
  const { rate } = complete(wanted, now);
  if (rate === undefined || now.rate === undefined || failed.some(({ setting }) => setting !== 'rate')) return false;
  const hasNoEffect =
    error instanceof SriovError && error.cause instanceof NetdraError && error.cause.code === 'no-effect';
  return hasNoEffect && isRounded(rate, now.rate);
}

/**
 * Returns the drift of a MAC address that the PF cannot set and the claim does not request; `undefined` if the error has
 * another cause. Such a VF in user space keeps the address that it has.
 */
function unpinnable(error: NetdraError, { config }: StoredDevice, failed: readonly PfDrift[]): PfDrift | undefined {
  if (!(error instanceof SriovError) || error.code !== 'property-unsupported') return undefined;
  const isAlone = error.properties.length === 1 && config.macAddress === undefined;
  return isAlone
    ? failed.find(({ setting }) => setting === 'hardwareAddress' && error.properties.includes(setting))
    : undefined;
}
