import { claimKey, claimName, type DeviceKey, findDevice, formatDeviceKey } from '../../framework/metadata/index.ts';
import type { Clock } from '../../lib/clock.ts';
import { failuresOf } from '../../lib/failures-of.ts';
import type { Locks } from '../../lib/keyed-mutex.ts';
import type { Logger } from '../../lib/logger.ts';
import { asOneError, isUserSpace, StateError, type StoredClaim, type StoredDevice } from '../model/index.ts';
import type { SandboxRegistry } from '../sandbox/index.ts';
import type { StoredClaims } from '../state/index.ts';
import type { Attachments } from '../vf/index.ts';

/**
 * Time for a sandbox to start, ms: the kubelet's limit is four minutes. Another component may attach VFs at any time during
 * it.
 */
const longestStartMs = 240_000;

export interface ObservedVfsOptions {
  store: StoredClaims;
  sandboxes: Pick<SandboxRegistry, 'hasPod' | 'isFresh'>;
  attachments: Pick<Attachments, 'isOnHost' | 'detachLost'>;
  locks: Locks;
  clock: Clock;
  logger: Logger;
}

/**
 * Detaches VFs of claims with `attach: observe` that another component, such as Multus, has left in a sandbox which the
 * runtime has lost. The component needs the VF on the host for the pod's next sandbox.
 */
export class ObservedVfs {
  readonly #options: ObservedVfsOptions;
  /** Times since which VFs have been away from the host without a listed sandbox, ms, by claim and VF. */
  readonly #awaySinceMs = new Map<string, number>();

  constructor(options: ObservedVfsOptions) {
    this.#options = options;
  }

  /**
   * Runs one sweep. Does nothing while the runtime's list of sandboxes is out of date. @throws StateError `store-unusable`;
   * NetlinkError, SriovError
   */
  async sweep(signal: AbortSignal): Promise<void> {
    const { store, sandboxes, locks } = this.#options;
    if (!sandboxes.isFresh) return this.#awaySinceMs.clear();
    const claims = store.claims().map((claim) => [claim.identity, unseenDevices(claim)] as const);
    const unseen = claims.flatMap(([claim, devices]) => devices.map((device) => ({ claim, device })));
    const away = new Set<string>();
    try {
      // The VFs are checked in parallel: other work may hold the lock of a claim for a minute.
      const errors = await failuresOf(
        unseen.map(async ({ claim, device }) => {
          // A VF whose check fails counts as away, too: the next sweep tries again, without waiting four minutes.
          away.add(keyOf(claim.uid, device));
          const isAway = await locks.run(claimKey(claim), () => this.#isAway(claim.uid, device), signal);
          if (!isAway) away.delete(keyOf(claim.uid, device));
        }),
      );
      if (errors.length > 0) throw errors.find((error) => error instanceof StateError) ?? asOneError(errors);
    } finally {
      const isWhole = !signal.aborted && sandboxes.isFresh;
      for (const each of this.#awaySinceMs.keys()) if (isWhole && !away.has(each)) this.#awaySinceMs.delete(each);
    }
  }

  /**
   * Checks a VF, and detaches it if it has been away for long enough. @returns whether the VF is away from the host and was
   * not detached
   */
  async #isAway(claimUid: string, unseen: DeviceKey): Promise<boolean> {
    const { store, sandboxes, attachments, clock, logger } = this.#options;
    const claim = store.claim(claimUid);
    const device = claim && findDevice(unseenDevices(claim), unseen);
    if (claim === undefined || device === undefined || !sandboxes.isFresh) return false;
    if (claim.podUids.some((uid) => sandboxes.hasPod(uid)) || (await attachments.isOnHost(device))) return false;
    const key = keyOf(claimUid, device);
    const sinceMs = this.#awaySinceMs.get(key) ?? clock.nowMs();
    this.#awaySinceMs.set(key, sinceMs);
    if (clock.nowMs() - sinceMs < longestStartMs) return true;
    await attachments.detachLost(device);
    logger.warn(
      { claim: claimName(claim.identity), device: device.name },
      'detached a VF from a sandbox that the runtime has lost',
    );
    return false;
  }
}

/**
 * Returns the key of a VF of a claim. The claim is part of the key: its next claim may have the VF in a sandbox that starts.
 */
function keyOf(claimUid: string, device: DeviceKey): string {
  return `${claimUid}/${formatDeviceKey(device)}`;
}

/** Returns VFs that another component attaches and that no hook has found in a sandbox. */
function unseenDevices({ state, devices }: StoredClaim): StoredDevice[] {
  if (state !== 'prepared') return [];
  const isUnseen = ({ config, attachment }: StoredDevice) => config.attach === 'observe' && attachment === undefined;
  return devices.filter((device) => isUnseen(device) && !isUserSpace(device));
}
