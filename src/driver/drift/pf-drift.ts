import { claimKey, claimName } from '../../framework/metadata/index.ts';
import { pauseMs } from '../../lib/backoff.ts';
import type { Clock } from '../../lib/clock.ts';
import { defined } from '../../lib/defined.ts';
import { explain, NetdraError } from '../../lib/errors.ts';
import { failuresOf } from '../../lib/failures-of.ts';
import { KeyedMutex, type Locks } from '../../lib/keyed-mutex.ts';
import type { Logger } from '../../lib/logger.ts';
import { pauses } from '../../lib/waiting-times.ts';
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
import type { DriftState } from './drift-record.ts';

/** Settings that were restored this often within this time have another writer. */
const contested = { times: 3, withinMs: 600_000 };
/** How long a VF may be missing in the list of its PF, while the card resets it, ms. */
const resetMs = 10_000;
/** For how many VFs of a PF its whole list may be read at once: after a reset of the card, all VFs have lost theirs. */
const restoresAtOnce = 4;

export interface PfDriftOptions {
  store: StoredClaims;
  control: VfControl;
  locks: Locks;
  /** Called when settings were restored. */
  onRestored: (claim: StoredClaim, device: StoredDevice, drifts: readonly PfDrift[]) => void;
  /** Called for each VF that was compared. */
  onCompared: (claim: StoredClaim, device: StoredDevice, found: PfComparison) => void;
  clock: Clock;
  logger: Logger;
}

/** Settings of a VF that differ, by what netdra does about them; absent: none. */
export interface PfComparison {
  /** Settings that the PF has lost, or may have lost. */
  lost?: DriftState;
  /** Settings that another component, or the pod, may have chosen. */
  others?: DriftState;
}

interface KnownVf {
  /** Number of consecutive failures. */
  failures: number;
  nextAttemptMs: number;
  /** Times of the last restores of its settings. */
  restoredAtMs: number[];
  /** Time since which its PF does not report it. */
  unknownSinceMs?: number;
  /** Accepted deviations of a card that cannot do better: rates that it rounds, the MAC of before user space. */
  accepted: Map<string, string>;
  /** Why the last attempt failed. */
  reason?: string;
  /** State of a VF in user space that another program has unbound from its driver. */
  driver?: DriftState;
  /** Settings that another program seems to change. */
  contest?: DriftState;
}

type PodVf = { claim: StoredClaim; device: StoredDevice };

/**
 * Compares the PFs' settings for VFs in pods with class and claim, and restores them: a reset of the card, or another
 * program, would otherwise leave a pod in another network, or without limits. Makes one request for each PF and round, and
 * for each VF whose settings differ. Decision: docs/decisions/0046-settings-are-kept.md
 */
export class PfDriftSweep {
  readonly #options: PfDriftOptions;
  /** Known VFs, by claim and VF. */
  readonly #known = new Map<string, KnownVf>();
  /** By PF. Taken after the lock of the claim, so that VFs that wait for that lock take no turn. */
  readonly #turns = new KeyedMutex(restoresAtOnce);

  constructor(options: PfDriftOptions) {
    this.#options = options;
  }

  /** Runs one round. Never waits for a VF that is being reset. @throws StateError `store-unusable` */
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
   * Checks whether a VF in user space still has the driver that its pod got it with. Binding it anew would not return it to
   * the pod.
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
    const all =
      driver && lost
        ? { drifts: [...driver.drifts, ...lost.drifts], reason: `${driver.reason}; ${lost.reason}` }
        : (driver ?? lost);
    this.#options.onCompared(vf.claim, vf.device, defined({ lost: all, others }));
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
    // At once: other work on a claim may have its lock for a minute, and the VFs of other tenants need not wait for that.
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
      const lost = this.#contestOf(vf, []);
      this.#compared(vf, defined({ lost }));
      return;
    }
    // A claim that is being unprepared, or passes to another pod, is restored meanwhile, and the reading may predate a
    // change of ours.
    const setAgain = async () => {
      const settings = (await this.#options.control.settingsOf(pfAddress)).get(vfIndex);
      const current = find();
      if (current !== undefined && settings !== undefined) await this.#setAgain(current, settings);
    };
    const inTurn = () => this.#turns.run(pfAddress, setAgain, signal);
    try {
      await locks.run(claimKey(identity), inTurn, signal);
    } catch (error) {
      // The card is being reset: the next round shows whether it lasts.
      if (!(error instanceof UnknownVfStateError)) throw error;
    }
  }

  #driftOf(vf: PodVf, now: VfChange): PfDrift[] {
    const { accepted } = this.#of(vf);
    return pfDriftOf(vf.device, now).filter(({ setting, found }) => accepted.get(setting) !== found);
  }

  async #setAgain(vf: PodVf, now: VfChange): Promise<void> {
    const { clock } = this.#options;
    const { device } = vf;
    const drifts = this.#driftOf(vf, now);
    const due = drifts.filter((drift) => isRestorable(device, drift, now));
    const left = drifts.filter((drift) => !due.includes(drift));
    const known = this.#of(vf);
    let lost: DriftState | undefined;
    if (due.length === 0) lost = this.#contestOf(vf, []);
    else if (clock.nowMs() < known.nextAttemptMs) lost = { drifts: due, reason: known.reason ?? '' };
    else lost = await this.#attempt(vf, due, now);
    const others = left.length === 0 ? undefined : { drifts: left, reason: leftReason(device) };
    this.#compared(vf, defined({ lost, others }));
  }

  /** Restores the settings. @returns those that could not be set */
  async #attempt(vf: PodVf, due: readonly PfDrift[], now: VfChange): Promise<DriftState | undefined> {
    const { control, clock, logger, onRestored } = this.#options;
    const { claim, device } = vf;
    const known = this.#of(vf);
    const kept = keptBy(device);
    const wanted: VfPropertiesWanted = Object.fromEntries(due.map(({ setting }) => [setting, kept[setting]]));
    try {
      await control.setAgain(device, wanted, device.before ?? { vf: {} });
    } catch (error) {
      if (!(error instanceof NetdraError) || error instanceof StateError) throw error;
      const given = isRounding(error, wanted, now) ? due[0] : unpinnable(error, device, due);
      if (given !== undefined) {
        known.accepted.set(given.setting, given.found);
        return undefined;
      }
      known.nextAttemptMs = clock.nowMs() + pauseMs(known.failures++, pauses.drift);
      known.reason = `restoring it failed: ${explain(error)}`;
      return { drifts: due, reason: known.reason };
    }
    const log = { claim: claimName(claim.identity), device: device.name, drift: describeDrift(due) };
    logger.warn(log, 'restored settings that a VF in a pod had lost');
    known.restoredAtMs.push(clock.nowMs());
    onRestored(claim, device, due);
    return this.#contestOf(vf, due);
  }

  /**
   * Called when nothing differs any more. @param restored settings that were just restored @returns settings that another
   * program seems to change
   */
  #contestOf(vf: PodVf, restored: readonly PfDrift[]): DriftState | undefined {
    const known = this.#of(vf);
    known.failures = 0;
    known.nextAttemptMs = 0;
    const sinceMs = this.#options.clock.nowMs() - contested.withinMs;
    known.restoredAtMs = known.restoredAtMs.filter((atMs) => atMs > sinceMs);
    if (known.restoredAtMs.length < contested.times) delete known.contest;
    // The state stays the same between two changes.
    else if (restored.length > 0)
      known.contest = { drifts: restored, reason: 'another program keeps changing this setting: stop that program' };
    return known.contest;
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
    const known = this.#known.get(key) ?? { failures: 0, nextAttemptMs: 0, restoredAtMs: [], accepted: new Map() };
    this.#known.set(key, known);
    return known;
  }
}

/** Waits for all. @throws the first failure when all have ended */
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

/** Returns whether the only failure is a rounded rate, which stays the same when it is set again. */
function isRounding(error: NetdraError, wanted: VfPropertiesWanted, now: VfChange): boolean {
  const { rate, ...rest } = complete(wanted, now);
  if (rate === undefined || now.rate === undefined || propertiesOf(rest).length > 0) return false;
  const hasNoEffect =
    error instanceof SriovError && error.cause instanceof NetdraError && error.cause.code === 'no-effect';
  return hasNoEffect && isRounded(rate, now.rate);
}

/** Returns whether the PF cannot set a MAC: the MAC of a VF in user space is then left to it, as when it is prepared. */
function unpinnable(error: NetdraError, { config }: StoredDevice, due: readonly PfDrift[]): PfDrift | undefined {
  if (!(error instanceof SriovError) || error.code !== 'property-unsupported') return undefined;
  const isAlone = error.properties.length === 1 && config.macAddress === undefined;
  return isAlone
    ? due.find(({ setting }) => setting === 'hardwareAddress' && error.properties.includes(setting))
    : undefined;
}
