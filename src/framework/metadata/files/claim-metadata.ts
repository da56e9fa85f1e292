import { isDeepStrictEqual } from 'node:util';
import { Batch } from '../../../lib/batch.ts';
import { metadataVersions } from '../document/codec.ts';
import { baseRequest, type ClaimIdentity, type DeviceMetadata, type MetadataDocument } from '../document/document.ts';
import { validateDevices } from '../document/validate.ts';
import { MetadataError } from '../errors.ts';
import { checkGateHook, checkSandboxId } from '../gate/gate.ts';
import type { LayoutName } from '../layouts/layout.ts';
import { ClaimDirs, type ClaimMetadataOptions } from './claim-dirs.ts';
import { ClaimFiles } from './claim-files.ts';
import { ClaimGate } from './claim-gate.ts';
import type { ClaimRecord, PreparedContent, PreparedRecord, UnpreparedRecord } from './claim-record.ts';
import { type ClaimState, contentOf, findRequest, hasGate, requestOf, withoutGate } from './claim-state.ts';
import { holdDirectories } from './held-directories.ts';
import { checkAllWritten, checkOwnership, checkPrepared } from './ownership.ts';
import { prepareState, withContent } from './prepare-state.ts';

/** Result of an update. */
export interface MetadataUpdate {
  /** Generation of the file; 0 if metadata is off and the claim has no file. */
  generation: number;
  /** Whether a file was written; `false` if all files already had this content. */
  isWritten: boolean;
}

/** Runs a task for a claim with the claim's lock held. */
type RunLocked = (key: string, task: () => Promise<void>) => Promise<void>;

/** A claim whose files are about to be created. */
interface ClaimPlan {
  uid: string;
  record: ClaimRecord;
  state: ClaimState;
  /** Whether its record must be written. */
  isChanged: boolean;
  commit: (() => void) | undefined;
}

/**
 * The metadata files and CDI specs of one driver's claims. Rules, all kept across restarts: before generation 1 a deferred
 * request has no file, or an empty file and a closed gate, so that no container starts without metadata; the generation never
 * decreases for a claim UID; files that a container may have mounted are changed in place; a claim with another UID under the
 * same name starts afresh. Calls other than `restore` take effect in the order in which they are made: each works
 * synchronously.
 */
export class ClaimMetadata extends ClaimDirs {
  readonly #layouts: LayoutName[];
  readonly #files: ClaimFiles;
  readonly #gate: ClaimGate;

  /** @throws MetadataError `metadata-invalid` without a layout or version: a CDI spec that mounts nothing is invalid */
  constructor(options: ClaimMetadataOptions) {
    super(options);
    const { layouts, versions } = options;
    if (layouts.length === 0)
      throw new MetadataError('metadata-invalid', 'the list of layouts for device metadata is empty');
    if (versions?.length === 0)
      throw new MetadataError('metadata-invalid', 'the list of versions of device metadata is empty');
    if (options.gate !== undefined) checkGateHook(options.gate);
    this.#layouts = layouts.map(({ name }) => name);
    this.#files = new ClaimFiles(options, this.hostDirs);
    this.#gate = new ClaimGate(this.states, this.#files);
  }

  /**
   * Creates the files that the containers of a prepared claim will mount, and their gate. Content from earlier updates of the
   * same claim stays.
   * @param contents by base request name; a request without an entry is deferred
   * @returns the CDI ID of each request that has a spec, by base name; none while metadata is off and the claim has no gate
   * @throws MetadataError `metadata-invalid`, `metadata-name-invalid` before anything is written; `metadata-io`
   */
  async prepare(record: ClaimRecord, contents: ReadonlyMap<string, PreparedContent>): Promise<Map<string, string>> {
    const ids = (await this.prepareAll([{ record, contents }])).get(record.claim.uid);
    if (ids instanceof Map) return ids;
    throw ids;
  }

  /**
   * Prepares several claims at once, with their records in one step. A failed claim does not affect the others.
   * @returns by UID: the result or the error of `prepare`
   * @throws errors of the driver's own records, which concern all claims
   */
  async prepareAll(claims: readonly PreparedRecord[]): Promise<Map<string, Map<string, string> | Error>> {
    return holdDirectories(() => {
      const all = claims.map((claim) => ({ ...claim, uid: claim.record.claim.uid }));
      const batch = new Batch(all).map((claim) => this.#plan(claim));
      // Safe against interruption: while a file can be blank, its spec has the hook, and the gate is closed.
      batch.run(({ state }) => this.#writeGate(state));
      this.states.together(() =>
        batch.run(({ state, isChanged, commit }) => {
          if (isChanged) this.states.write(state);
          commit?.();
        }),
      );
      const ids = new Map<string, Map<string, string>>();
      batch.run(({ uid, state, record }) => {
        this.#files.writeFiles(state);
        if (this.#isPending(state)) this.options.onPending?.(state.claim);
        ids.set(uid, this.#files.idsOf(state, Object.keys(record.requests)));
      });
      return new Map<string, Map<string, string> | Error>([...ids, ...batch.errors]);
    });
  }

  /**
   * Recreates CDI specs and files of all claims from their records, and closes gates that are open for another sandbox, which a
   * crash can cause. Does not touch correct files. A claim whose hook is lost and cannot be written again is recorded as
   * prepared without the gate: otherwise the runtime would refuse its containers until it is prepared again.
   * @param locked runs the task while holding the lock of one claim, by its `claimKey`
   * @returns the failures of claims
   * @throws MetadataError `metadata-io`; errors of the driver's own records
   */
  async restore(locked: RunLocked = (_key, task) => task()): Promise<Error[]> {
    const restoreOne = (dir: string) =>
      holdDirectories(() => {
        const found = this.states.readIn(dir);
        if (found === undefined) return;
        const state = this.#files.isHookLost(found) ? withoutGate(found) : found;
        if (state !== found) this.states.write(state);
        this.#writeGate(state);
        this.#files.writeFiles(state);
      });
    const restored = await Promise.allSettled(
      this.states.dirs().claims.map((dir) => locked(dir, async () => restoreOne(dir))),
    );
    return restored.flatMap((each) => (each.status === 'rejected' ? [each.reason as Error] : []));
  }

  /**
   * Writes the current state of a request's devices. The list replaces the previous list as a whole. Writes nothing if the file
   * already has this content.
   * @param request base name or full `request/subrequest`
   * @param sandboxId the runtime's ID of the sandbox that has the devices. The gate opens for the sandbox when every request
   * for which containers wait was updated for it since the gate was last closed. Absent: the gate stays as it is.
   * @throws MetadataError `metadata-not-prepared` if claim UID, request or devices differ from the prepared ones,
   * `metadata-invalid` if consumers need not accept the content, `metadata-name-invalid` for an invalid sandbox ID,
   * `metadata-io`
   */
  async update(
    claim: ClaimIdentity,
    request: string,
    devices: DeviceMetadata[],
    sandboxId?: string,
  ): Promise<MetadataUpdate> {
    if (sandboxId !== undefined) checkSandboxId(sandboxId);
    return holdDirectories(() => {
      const found = this.states.read(claim);
      if (!this.#isEnabled && found?.claim.uid !== claim.uid) return { generation: 0, isWritten: false };
      const state = checkPrepared(found, claim);
      checkOwnership(state, { claim, request, devices, driver: this.options.driver });
      validateDevices(claim, request, devices);
      const base = baseRequest(request);
      const content = withContent(requestOf(state, base), devices, this.now());
      const isWritten = this.#gate.update(state, base, content, sandboxId);
      return { generation: state.layouts.length === 0 ? 0 : content.generation, isWritten };
    });
  }

  /**
   * Opens the gate of a claim without an update: for a sandbox whose content is already recorded, and for claims whose metadata
   * was complete at prepare. From then on containers of the sandbox can start, also after restarts and while the driver is not
   * running; containers of any other sandbox cannot.
   * @param sandboxId the runtime's ID of the sandbox
   * @throws MetadataError `metadata-not-prepared`; `metadata-not-written` if a request of the claim has no content yet;
   * `metadata-name-invalid` for an invalid sandbox ID; `metadata-io`
   */
  async openGate(claim: ClaimIdentity, sandboxId: string): Promise<void> {
    checkSandboxId(sandboxId);
    holdDirectories(() => {
      const found = this.states.read(claim);
      if (!this.#isEnabled && found?.claim.uid !== claim.uid) return;
      const state = checkPrepared(found, claim);
      checkAllWritten(state, claim);
      this.#gate.open(state, sandboxId);
    });
  }

  /**
   * Closes the gate of a claim and blanks its files, and hides them if it has no gate: no container starts before the next
   * update and `openGate`. Call it when a pod gets a new sandbox, which makes the content obsolete. Generations are kept. Files
   * of the layout `attributes-json` stay: their content does not depend on the sandbox.
   * @param requests requests whose files are withdrawn, by base name or full reference; default all
   * @param endedId the runtime's ID of a sandbox that is being stopped: its containers fail at once, as after `endGate`
   */
  async withdraw(claim: ClaimIdentity, requests?: readonly string[], endedId?: string): Promise<void> {
    if (endedId !== undefined) checkSandboxId(endedId);
    holdDirectories(() => this.#gate.withdraw(claim, requests?.map(baseRequest), endedId));
  }

  /**
   * Tells the containers of a sandbox that they must wait, and why: if they time out, they fail with this reason. A gate that
   * is open for another sandbox stays open until `withdraw`.
   * @param reason turned into one line of at most 512 characters
   * @throws MetadataError `metadata-name-invalid` for an invalid sandbox ID, `metadata-io`
   */
  async holdGate(claim: ClaimIdentity, sandboxId: string, reason: string): Promise<void> {
    holdDirectories(() => this.#gate.keepOut(claim, { state: 'waiting', sandboxId, reason }));
  }

  /**
   * Makes containers of a sandbox that is being stopped fail at once. A gate that is open for another sandbox stays open.
   * @throws MetadataError `metadata-name-invalid` for an invalid sandbox ID, `metadata-io`
   */
  async endGate(claim: ClaimIdentity, sandboxId: string): Promise<void> {
    holdDirectories(() => this.#gate.keepOut(claim, { state: 'ended', sandboxId }));
  }

  /** Removes all files and the record of a claim. Does nothing for an unknown claim, or one known under a newer UID. */
  async unprepare(claim: ClaimIdentity): Promise<void> {
    const error = (await this.unprepareAll([{ claim }])).get(claim.uid);
    if (error !== undefined) throw error;
  }

  /**
   * Unprepares several claims at once. The records are removed last, in one step: if a crash interrupts this, they show which
   * files are left.
   * @returns by UID: the error of a claim that is still prepared
   * @throws errors of the driver's own records, which concern all claims
   */
  async unprepareAll(claims: readonly UnpreparedRecord[]): Promise<Map<string, Error>> {
    return holdDirectories(() => {
      const all = claims.map((unprepared) => ({ ...unprepared, uid: unprepared.claim.uid }));
      const batch = new Batch(all).map((each) => ({ ...each, isRecordOver: this.#removeFiles(each.claim) }));
      this.states.together(() =>
        batch.run(({ claim, discard, isRecordOver }) => {
          if (isRecordOver) this.states.remove(claim);
          discard?.();
        }),
      );
      return batch.errors;
    });
  }

  /**
   * Removes CDI specs, and files outside of claims' own directories, whose claims are unknown: their records are lost, or a
   * killed driver left the files.
   * @param known returns UIDs of all claims that may have files; called after the files are listed
   * @returns paths of removed files
   * @throws MetadataError `metadata-io`
   */
  removeUnknown(known: () => ReadonlySet<string>): string[] {
    return holdDirectories(() => this.#files.removeUnknown(known));
  }

  /**
   * Returns the document of a request, even if there are no files since metadata is off; `undefined` before its first content.
   * @throws MetadataError if the record cannot be read
   */
  read(claim: ClaimIdentity, request: string): MetadataDocument | undefined {
    const base = baseRequest(request);
    const state = this.states.read(claim);
    if (state?.claim.uid !== claim.uid || findRequest(state.requests, base) === undefined) return undefined;
    return contentOf(state, base, this.options.driver).document;
  }

  /** Returns whether all requests of a prepared claim make containers wait at the gate. */
  isGated(claim: ClaimIdentity): boolean {
    try {
      const state = this.states.read(claim);
      if (state?.claim.uid !== claim.uid || !hasGate(state)) return false;
      // A request that the claim no longer has remains, without devices, to keep its generation.
      return Object.values(state.requests).every(({ isGated, devices }) => isGated === true || devices.length === 0);
    } catch {
      // The calls that need the record report that it is unreadable.
      return false;
    }
  }

  /**
   * Returns whether a container that uses a claim uses the request: the container has mounted the request's file. Also `true`
   * if it has mounted no file of the claim, as while metadata is off: it may then use all requests.
   */
  isRequestUsedBy(
    claim: ClaimIdentity,
    request: string,
    { mounts }: { mounts: readonly { source: string }[] },
  ): boolean {
    try {
      const base = baseRequest(request);
      const state = this.states.read(claim);
      if (state?.claim.uid !== claim.uid || findRequest(state.requests, base) === undefined) return true;
      const sources = new Set(mounts.map(({ source }) => source));
      const hasFileOf = (each: string) => this.#files.pathsOf(state, each).some((path) => sources.has(path));
      return hasFileOf(base) || !Object.keys(state.requests).some(hasFileOf);
    } catch {
      // The calls that need the record report that it is unreadable.
      return true;
    }
  }

  get #isEnabled(): boolean {
    return this.options.enabled ?? false;
  }

  /** Removes a claim's files. @returns `false` if the record must stay, since it is that of another claim of the same name */
  #removeFiles(claim: ClaimIdentity): boolean {
    const state = this.states.readForRemoval(claim);
    if (typeof state === 'object' && state.claim.uid === claim.uid) {
      this.#files.remove(state);
      return true;
    }
    this.#files.removeStrays(claim);
    if (typeof state === 'object' || this.states.isOfOther(claim)) return false;
    this.#files.removeClaimDir(claim);
    return true;
  }

  /** Plans a claim's files. Checks all input before any file of the new state is written. */
  #plan({ record, contents, commit }: PreparedRecord): ClaimPlan {
    const { driver, attributesOf = () => undefined, bootId, gate, records, versions = metadataVersions } = this.options;
    const recovery = { driver, dirs: this.hostDirs, now: this.now() };
    const { state: found, isRecorded, problem } = this.states.readOrRecover(record, recovery);
    if (problem !== undefined) this.options.onRecovered?.(record.claim, problem);
    const kept = found?.claim.uid === record.claim.uid ? found : undefined;
    const layouts = this.#isEnabled ? this.#layouts : [];
    const isGated = gate !== undefined;
    const preparation = { record, contents, layouts, versions, isGated, bootId, attributesOf, now: this.now() };
    const state = this.#gate.prepared(prepareState(preparation, kept));
    this.#files.check(state);
    // Removed before the record of these files is overwritten.
    if (kept !== undefined) this.#files.removeOver(kept, state);
    if (found !== undefined && kept === undefined) {
      this.#files.remove(found);
      this.states.remove(found.claim);
    }
    // While metadata is off, a claim is recorded only in a driver's own records.
    const isNothing = kept === undefined && state.layouts.length === 0 && !hasGate(state) && records === undefined;
    return {
      uid: state.claim.uid,
      record,
      state,
      isChanged: !isNothing && (!isRecorded || !isDeepStrictEqual(state, kept)),
      commit,
    };
  }

  #writeGate(state: ClaimState): void {
    this.#gate.writeRequest(state);
    this.#files.writeHooks(state);
  }

  /** Returns whether containers of the claim wait for an update. */
  #isPending(state: ClaimState): boolean {
    if (hasGate(state)) return !state.servedBy;
    return Object.values(state.requests).some(({ content }) => content === undefined);
  }
}
