import { baseRequest, type ClaimIdentity, type ClaimMetadata, claimKey } from '../../framework/metadata/index.ts';
import type { Clock } from '../../lib/clock.ts';
import type { Locks } from '../../lib/keyed-mutex.ts';
import {
  asOneError,
  groupOf,
  isUserSpace,
  type SandboxIdentity,
  type SandboxPlace,
  type StoredClaim,
  type StoredDevice,
  wasServedIn,
} from '../model/index.ts';
import type { StoredClaims } from '../state/index.ts';
import { type Attachments, leftError, type PodLinks, type VfState } from '../vf/index.ts';
import type { NamespaceProbe, NetworkNamespace } from '../vf/networks.ts';
import type { DeviceReading, MetadataCalls, MetadataWriter } from './metadata-writer.ts';
import type { NumaChecks } from './numa-guard.ts';
import type { End } from './phases.ts';
import { netnsMissing } from './pod.ts';
import { alignmentIn, type MetadataReader, metadataOf } from './pod-metadata.ts';
import { awaitRouters, isLacking } from './router-wait.ts';

export interface ClaimWorkOptions {
  store: StoredClaims;
  locks: Locks;
  clock: Clock;
  attachments: Attachments;
  networks: NamespaceProbe;
  writer: Pick<MetadataWriter, 'write'>;
  metadata: MetadataReader & Pick<ClaimMetadata, 'isServedFor'>;
  numa: NumaChecks;
  files: MetadataCalls;
  /** Configures a VF on the host again, before it is attached: its PF may have been reset since prepare. */
  reconfigure: (claim: StoredClaim, device: StoredDevice) => Promise<void>;
  /** Called with the state of each VF that was already attached and is read again. */
  onRead?: (claim: StoredClaim, device: StoredDevice, state: VfState) => void;
}

/** Callbacks for the progress of a claim's devices, which are attached or read one after the other. */
export interface DeviceSteps {
  deviceBegins(device: StoredDevice): void;
  deviceReady(): void;
}

export interface ClaimSteps extends DeviceSteps {
  /**
   * Called, perhaps repeatedly, when all VFs are attached and only addresses from routers are missing. Other claims can then
   * be served at the same time.
   */
  waits(): void;
}

/**
 * Result of serving a claim: `ready`; `tentative` if its addresses will change soon; `gone` if it is no longer prepared for
 * the pod; `withdrawn`, with the reason, if its metadata is no longer there, so that no container can start with it, and
 * with the devices that have left the pod.
 */
export type ServeResult = 'ready' | 'tentative' | 'gone' | { withdrawn: unknown; lost?: readonly StoredDevice[] };

/** Operations on one claim in one sandbox. All of them except `end` hold the claim's lock. */
export class ClaimWork {
  readonly #options: ClaimWorkOptions;
  /** Sandboxes in which claims were served, by UID of the claim, while the store could not record that. */
  readonly #servedIn = new Map<string, string>();

  constructor(options: ClaimWorkOptions) {
    this.#options = options;
  }

  /** Returns the links of a pod for one pass. @param follow see {@link PodLinks} */
  podLinks(namespace: NetworkNamespace, follow: () => void): PodLinks {
    return this.#options.attachments.podLinks(namespace, follow);
  }

  /**
   * Attaches the claim's VFs, or reads them if they are attached, and writes the metadata. If one VF fails, the others are
   * still handled. If a VF has left the pod, the metadata of its request is withdrawn and the claim's gate closed; the next
   * call attaches the VF again.
   * @throws SandboxError, NetlinkError, CniError, SriovError, MetadataError, StateError: the metadata is then unchanged
   */
  async serve(
    identity: ClaimIdentity,
    place: SandboxPlace,
    pod: PodLinks,
    signal: AbortSignal,
    progress: ClaimSteps,
  ): Promise<ServeResult> {
    return await this.#options.locks.run(claimKey(identity), async () => {
      signal.throwIfAborted();
      // Another instance of the driver may have worked on the claim since the links were listed.
      pod.changed();
      return await this.#serve(identity, place, pod, signal, progress);
    });
  }

  /** Serves the claim. Its lock must be held. */
  async #serve(
    identity: ClaimIdentity,
    place: SandboxPlace,
    pod: PodLinks,
    signal: AbortSignal,
    progress: ClaimSteps,
  ): Promise<ServeResult> {
    const { writer, files, metadata, networks } = this.#options;
    const claim = this.#preparedFor(place.podUid, identity.uid);
    if (claim === undefined) return 'gone';
    const { devices } = claim;
    const isElsewhere = devices.some(({ attachment }) => attachment && attachment.sandboxId !== place.sandboxId);
    // Another instance of the driver may have served the pod's next sandbox.
    if (isElsewhere && networks.isGone(place.netnsPath)) throw netnsMissing(place);
    const isStale = (device: StoredDevice) => device.attachment && this.#knownOf(identity, device, place) === undefined;
    const stale = isElsewhere ? devices : devices.filter(isStale);
    // Stale metadata is withdrawn before anything else, so that no container starts with it. It is stale if it describes an
    // earlier sandbox of the pod, or if a full disk kept an earlier withdrawal from removing the file.
    if (stale.length > 0) await files.withdrawMetadata(identity, requestsOf(stale));
    const { readings, unwritten, changing, lost, errors } = await this.#readAll(claim, place, pod, signal, progress);
    const fail = (error: unknown) => void errors.push(error);
    // A claim that fails anyway does not wait for routers: its failure would be reported late, and other work on it would
    // wait, too.
    const isWhole = lost.length === 0 && errors.length === 0;
    // While the gate is closed, VFs that already had an address in an earlier attempt are awaited, too.
    const awaits = isWhole && readings.some(isLacking) && !metadata.isServedFor(identity, place.sandboxId);
    if (awaits) await this.#awaitRouters(readings, place, pod, signal, progress).catch(fail);
    signal.throwIfAborted();
    const isChanged = awaits || unwritten.length > 0;
    // Without the start gate, containers start as soon as a file exists, so VFs without an address get none.
    for (const reading of unwritten.filter(isLacking)) reading.state = undefined;
    if (isChanged) await this.#readAgain(changing, place, pod).catch(fail);
    const openedFor = errors.length === 0 ? place.sandboxId : undefined;
    await writer.write(identity, openedFor, readings).catch(fail);
    if (lost.length > 0) return { withdrawn: leftError(lost, place, asOneError(errors)), lost };
    // Not `ready` on an earlier result: another instance may have withdrawn the metadata since.
    if (errors.length > 0 && isChanged) return { withdrawn: asOneError(errors) };
    if (errors.length > 0) throw asOneError(errors);
    return readings.some(({ state }) => state?.tentative) ? 'tentative' : 'ready';
  }

  /** Attaches the claim's VFs, or reads those that are attached, one after the other. */
  async #readAll(claim: StoredClaim, place: SandboxPlace, pod: PodLinks, signal: AbortSignal, progress: DeviceSteps) {
    const { files, metadata, attachments, numa } = this.#options;
    const { identity, devices } = claim;
    const readings: DeviceReading[] = [];
    const lost: StoredDevice[] = [];
    const errors: unknown[] = [];
    const changing: DeviceReading[] = [];
    const unwritten: DeviceReading[] = [];
    let wasServed: boolean | undefined;
    for (const stored of devices) {
      const device = { ...stored };
      const known = this.#knownOf(identity, device, place);
      // The metadata of a configured device may be missing: it is withdrawn together with that of other devices of its
      // request.
      const isConfigured = known !== undefined || isConfiguredIn(place, device);
      const alignment = numa.alignmentOf(identity.uid, place.sandboxId, device.name) ?? alignmentIn(known);
      const reading: DeviceReading = { request: device.request, device, state: undefined, alignment };
      readings.push(reading);
      if (mayChangeMeanwhile(stored)) changing.push(reading);
      if (known === undefined) unwritten.push(reading);
      progress.deviceBegins(device);
      try {
        reading.state = await (isConfigured
          ? attachments.read(device, pod, known?.networkData ?? {})
          : this.#attach(claim, device, place, pod, signal));
        if (reading.state !== undefined) {
          if (isConfigured) this.#options.onRead?.(claim, device, reading.state);
          // An earlier version may have attached it, which did not store that.
          if (known !== undefined) this.#markConfigured(claim, device);
          progress.deviceReady();
          continue;
        }
        lost.push(device);
        wasServed ??= wasServedIn(claim, place.sandboxId) || metadata.isServedFor(identity, place.sandboxId);
        try {
          // The next call attaches it again, also after a crash.
          this.#left(identity, device, place, wasServed);
        } finally {
          await files.withdrawMetadata(identity, requestsOf([device]));
        }
      } catch (error) {
        signal.throwIfAborted();
        errors.push(error);
      }
    }
    return { readings, unwritten, changing, lost, errors };
  }

  async #awaitRouters(
    readings: readonly DeviceReading[],
    place: SandboxPlace,
    pod: PodLinks,
    signal: AbortSignal,
    { waits }: ClaimSteps,
  ) {
    signal.throwIfAborted();
    const { attachments, clock } = this.#options;
    const read = async (device: StoredDevice) => await attachments.read(device, pod);
    await awaitRouters(readings, { clock, place, signal, waits, read, readsBegin: () => pod.changed() });
  }

  /**
   * Reads VFs again whose state may have changed while the others were attached or waited for addresses: plugins and routers
   * take their time. The state of a VF that cannot be read, or has left, is `undefined`, so that the gate stays closed.
   */
  async #readAgain(readings: readonly DeviceReading[], place: SandboxPlace, pod: PodLinks): Promise<void> {
    if (readings.length > 0) pod.changed();
    for (const reading of readings) {
      const { device, state } = reading;
      if (state === undefined) continue;
      reading.state = undefined;
      reading.state = await this.#options.attachments.read(device, pod);
      if (reading.state === undefined) throw leftError([device], place);
    }
  }

  /** Serves a claim without VFs, such as one with only `adminAccess`. It needs nothing of the pod's network. */
  async serveWithoutVfs(identity: ClaimIdentity, place: SandboxIdentity): Promise<ServeResult> {
    const { locks, writer } = this.#options;
    return await locks.run(claimKey(identity), async () => {
      const claim = this.#preparedFor(place.podUid, identity.uid);
      if (claim === undefined || claim.devices.length > 0) return 'gone';
      await writer.write(claim.identity, place.sandboxId, []);
      return 'ready';
    });
  }

  /**
   * Detaches the claim's VFs that are in the sandbox.
   * @param goal end of the sandbox
   * @returns number of VFs that were in the sandbox
   */
  async detach(identity: ClaimIdentity, sandboxId: string, goal: End): Promise<number> {
    const { store, locks, files, attachments } = this.#options;
    const { uid } = identity;
    return await locks.run(claimKey(identity), async () => {
      this.#servedIn.delete(uid);
      const devices = store.claim(uid)?.devices;
      if (devices === undefined) return 0;
      const here = devices.filter(({ attachment }) => attachment?.sandboxId === sandboxId);
      // The metadata is withdrawn before any VF is detached: no file may describe a VF that is gone.
      const endedId = goal === 'gone' ? sandboxId : undefined;
      if (here.length > 0) await files.withdrawMetadata(identity, requestsOf(devices), endedId);
      else if (endedId !== undefined) await files.endGate(identity, endedId);
      const errors: unknown[] = [];
      for (const device of here) {
        await attachments.detach(uid, { ...device }).catch((error: unknown) => errors.push(error));
      }
      if (errors.length > 0) throw asOneError(errors);
      return here.length;
    });
  }

  /** Records why containers of the sandbox wait for the claim. They fail with this reason when they time out. */
  async hold(identity: ClaimIdentity, sandboxId: string, reason: string): Promise<void> {
    const { store, locks, files } = this.#options;
    await locks.run(claimKey(identity), async () => {
      if (store.claim(identity.uid)?.state === 'prepared') await files.holdGate(identity, sandboxId, reason);
    });
  }

  /** Ends the wait of containers for the claim in the sandbox. Also works during an attempt to attach VFs. */
  async end(identity: ClaimIdentity, sandboxId: string): Promise<void> {
    await this.#options.files.endGate(identity, sandboxId);
  }

  #preparedFor(podUid: string, claimUid: string): StoredClaim | undefined {
    const claim = this.#options.store.claim(claimUid);
    return claim?.state === 'prepared' && claim.podUids.includes(podUid) ? claim : undefined;
  }

  /** Returns the metadata of a VF that is attached in this sandbox; it is withdrawn before the VF leaves the sandbox. */
  #knownOf(claim: ClaimIdentity, device: StoredDevice, { sandboxId }: SandboxPlace) {
    return device.attachment?.sandboxId === sandboxId ? metadataOf(this.#options.metadata, claim, device) : undefined;
  }

  async #attach(claim: StoredClaim, device: StoredDevice, place: SandboxPlace, pod: PodLinks, signal: AbortSignal) {
    const { attachment, ...unattached } = device;
    const reconfigure = () => this.#options.reconfigure(claim, unattached);
    if (attachment === undefined) await reconfigure();
    const { uid } = claim.identity;
    if (this.#servedIn.get(uid) === place.sandboxId) this.#left(claim.identity, device, place, true);
    const state = await this.#options.attachments.attach(uid, device, place, pod, signal, reconfigure);
    this.#markConfigured(claim, device);
    return state;
  }

  /** Stores that a VF has left. If the disk is full, a later call stores that the claim was served. @throws StateError */
  #left({ uid }: ClaimIdentity, device: StoredDevice, { sandboxId }: SandboxPlace, wasServed: boolean): void {
    if (wasServed) this.#servedIn.set(uid, sandboxId);
    this.#options.attachments.left(uid, device, this.#servedIn.get(uid) === sandboxId);
    this.#servedIn.delete(uid);
  }

  /** Stores that a VF is configured. The metadata of a request with one device shows that by itself. */
  #markConfigured({ identity, devices }: StoredClaim, device: StoredDevice): void {
    const base = baseRequest(device.request);
    const isOneOfSeveral = devices.filter(({ request }) => baseRequest(request) === base).length > 1;
    if (isOneOfSeveral) this.#options.attachments.setConfigured(identity.uid, device, true);
  }
}

/**
 * Returns whether the state of a VF may change while other VFs of its claim are attached. Each new member can change a bond's
 * address and active member; and a VF that was attached before may be in a pod whose containers run and move it away. A VF in
 * user space has no interface to move.
 */
function mayChangeMeanwhile(device: StoredDevice): boolean {
  return groupOf(device) !== undefined || (device.attachment !== undefined && !isUserSpace(device));
}

/** Returns whether the store shows that a device was configured in this sandbox and has not left it since. */
function isConfiguredIn({ sandboxId }: SandboxPlace, { attachment }: StoredDevice): boolean {
  return attachment?.sandboxId === sandboxId && attachment.isConfigured === true;
}

function requestsOf(devices: readonly StoredDevice[]): string[] {
  return devices.map(({ request }) => request);
}
