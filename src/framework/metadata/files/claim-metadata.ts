import { isDeepStrictEqual } from 'node:util';
import { defined } from '../../../lib/defined.ts';
import { baseRequest, type ClaimIdentity, type DeviceMetadata, type MetadataDocument } from '../document/document.ts';
import { validateDevices } from '../document/validate.ts';
import { MetadataError } from '../errors.ts';
import { checkGateHook, closeGate, type Gate, gateHook, isGateOf, readGate, writeGate } from '../gate/gate.ts';
import type { LayoutName } from '../layouts/layout.ts';
import { claimDirectory } from '../layouts/layout-v1.ts';
import { CdiSpecs, type ContainerEdits } from './cdi.ts';
import { ClaimDirs, type ClaimMetadataOptions } from './claim-dirs.ts';
import { ClaimFiles } from './claim-files.ts';
import type { ClaimRecord, PreparedContent } from './claim-record.ts';
import { type ClaimState, contentOf, findRequest, hasGate, requestOf } from './claim-state.ts';
import { holdDirectories } from './held-directories.ts';
import { makeDirectory } from './host-file.ts';
import { checkAllWritten, checkOwnership, findUnwritten } from './ownership.ts';
import { prepareState, withContent } from './prepare-state.ts';

/** Result of an update. */
export interface MetadataUpdate {
  /** Of the file; 0 if metadata is off and the claim has no file. */
  generation: number;
  /** Whether a file was written; `false` if all of them had this content already. */
  isWritten: boolean;
}

/**
 * The metadata files and CDI specs of the claims of one driver. Rules, all kept across restarts: before generation 1 a
 * deferred request has no file, or an empty one and a closed gate, so no container starts without it; generation never
 * decreases for the same claim UID; files that a container may have mounted are changed in place; another UID under the
 * same name starts from nothing. Calls run in the order in which they came: each does all of its work at once.
 */
export class ClaimMetadata extends ClaimDirs {
  readonly #layouts: LayoutName[];
  readonly #files: ClaimFiles;
  readonly #cdi: CdiSpecs;

  /** @throws MetadataError `metadata-invalid` without a layout: a CDI spec that mounts nothing is not valid */
  constructor(options: ClaimMetadataOptions) {
    super(options);
    const { driver, cdiDir, layouts, later } = options;
    if (layouts.length === 0) throw new MetadataError('metadata-invalid', 'no layout for device metadata is chosen');
    if (options.gate !== undefined) checkGateHook(options.gate);
    this.#layouts = layouts.map(({ name }) => name);
    this.#files = new ClaimFiles(driver, this.dirs, this.states, later);
    this.#cdi = new CdiSpecs({ dir: cdiDir, driver, class: 'metadata' });
  }

  /**
   * Lays down what the containers of a prepared claim will mount, and the gate that they wait at. Content from earlier
   * updates of the same claim stays.
   * @param contents by base request name; a request without an entry is deferred
   * @returns the CDI device id of each request that has a spec, by base name; none while metadata is off without a gate
   * @throws MetadataError `metadata-invalid`, `metadata-name-invalid` before anything is written; `metadata-io`
   */
  async prepare(record: ClaimRecord, contents: ReadonlyMap<string, PreparedContent>): Promise<Map<string, string>> {
    return holdDirectories(() => {
      const recovery = { driver: this.options.driver, dirs: this.dirs, now: this.now() };
      const { state: found, isRecorded, problem } = this.states.readOrRecover(record, recovery);
      if (problem !== undefined) this.options.onRecovered?.(record.claim, problem);
      const kept = found?.claim.uid === record.claim.uid ? found : undefined;
      const state = this.#nextState(record, contents, kept);
      // Everything is checked before anything is written.
      if (state !== undefined) this.#files.check(state);
      if (found !== undefined && (kept === undefined || state === undefined)) this.#remove(found);
      if (state === undefined) {
        this.options.onPrepared?.(record.claim);
        return new Map();
      }
      this.#closeGateUnlessValid(state, kept);
      const ids = new Map<string, string>();
      const writeSpecs = (gated: boolean) => {
        for (const base of Object.keys(state.requests)) {
          if ((requestOf(state, base).isGated === true) !== gated) continue;
          const edits = this.#containerEdits(state, base);
          if (edits === undefined) continue;
          this.#cdi.write(state.claim.uid, base, edits);
          if (Object.hasOwn(record.requests, base)) ids.set(base, this.#cdi.deviceId(state.claim.uid, base));
        }
      };
      // Containers wait only in a directory that is there, whether it has files or not.
      if (hasGate(state)) makeDirectory(claimDirectory(this.options.dataDir, state.claim));
      // Wherever this is interrupted: while a file can be blank, the spec that mounts it has the hook.
      writeSpecs(true);
      if (!isRecorded || !isDeepStrictEqual(state, kept)) this.states.write(state);
      for (const base of Object.keys(state.requests)) this.#files.layDown(state, base);
      writeSpecs(false);
      this.options.onPrepared?.(state.claim);
      if (this.#isPending(state)) this.options.onPending?.(state.claim);
      return ids;
    });
  }

  /**
   * Writes the current state of a request's devices; the list replaces the previous one as a whole. Nothing is written
   * if the file has this content already. Containers at the gate keep waiting: see `openGate`.
   * @param request base name or full `request/subrequest`
   * @throws MetadataError `metadata-not-prepared` if claim UID, request or devices are not what was prepared,
   * `metadata-invalid` if consumers need not accept it, `metadata-io`
   */
  async update(claim: ClaimIdentity, request: string, devices: DeviceMetadata[]): Promise<MetadataUpdate> {
    return holdDirectories(() => {
      const found = this.states.read(claim);
      if (!this.#isEnabled && found?.claim.uid !== claim.uid) return { generation: 0, isWritten: false };
      const state = checkOwnership(found, { claim, request, devices, driver: this.options.driver });
      if (state.layouts.length === 0) return { generation: 0, isWritten: false };
      validateDevices(claim, request, devices);
      const base = baseRequest(request);
      const before = requestOf(state, base);
      const after = withContent(before, devices, this.now());
      const next = { ...state, requests: { ...state.requests, [base]: after } };
      // The state is written first, so that no generation is ever given out twice.
      if (after !== before) this.states.write(next);
      const isWritten = this.#files.layDown(next, base);
      return { generation: after.generation, isWritten };
    });
  }

  /**
   * Closes the gate of a claim and blanks its files, or removes them if it has no gate: no container starts before the
   * next update, and `openGate` after it. Generations are remembered. For a pod that gets a new sandbox, which makes
   * the content obsolete. Files of the layout `attributes-json` stay: their content still holds.
   * @param requests whose files, by base name or full reference; default all
   */
  async withdraw(claim: ClaimIdentity, requests?: readonly string[]): Promise<void> {
    const bases = requests?.map(baseRequest);
    holdDirectories(() => {
      const state = this.#readOrClose(claim);
      if (state?.claim.uid !== claim.uid) return;
      closeGate(this.options.dataDir, claim);
      const over = Object.entries(state.requests).filter(([base]) => bases?.includes(base) ?? true);
      const withdrawn = over.map(([base, { content: _over, ...request }]) => [base, request]);
      const next = { ...state, requests: { ...state.requests, ...Object.fromEntries(withdrawn) } };
      const isVisible = over.some(([, { content }]) => content !== undefined);
      // The state first: if we are interrupted, the next call still knows that the content is withdrawn.
      if (isVisible) this.states.write(next);
      for (const [base] of over) this.#files.layDown(next, base);
    });
  }

  /**
   * Lets the containers of a sandbox start, now and at every restart, also while the driver is not running. Containers
   * of any other sandbox no longer can. To be called after the metadata of every request was updated for that sandbox,
   * and again at driver start for sandboxes that are already served: a claim that an older version laid down gets its
   * gate when it is prepared again. Files that something else has removed or damaged are written again.
   * @param sandboxId as the container runtime names it
   * @throws MetadataError `metadata-not-prepared`; `metadata-not-written` if a request of the claim has no content yet;
   * `metadata-name-invalid` for an invalid sandbox id; `metadata-io`
   */
  async openGate(claim: ClaimIdentity, sandboxId: string): Promise<void> {
    holdDirectories(() => {
      const state = this.states.read(claim);
      if (!this.#isEnabled && state?.claim.uid !== claim.uid) return;
      checkAllWritten(state, claim);
      // Files that no update writes: what they say was known at prepare.
      for (const [base, { isGated }] of Object.entries(state.requests)) {
        if (isGated !== true) this.#files.layDown(state, base);
      }
      if (hasGate(state)) writeGate(this.options.dataDir, claim, { state: 'served', sandboxId });
    });
  }

  /**
   * Tells the containers of a sandbox that they have to wait, and why: they fail with this reason when they time out. A
   * gate that is open for another sandbox stays open until `withdraw`.
   * @param reason turned into one line of at most 512 characters
   * @throws MetadataError `metadata-name-invalid` for an invalid sandbox id, `metadata-io`
   */
  async holdGate(claim: ClaimIdentity, sandboxId: string, reason: string): Promise<void> {
    this.#keepOut(claim, { state: 'waiting', sandboxId, reason });
  }

  /**
   * Makes containers of a sandbox that is being stopped fail at once. A gate open for another sandbox stays open.
   * @throws MetadataError `metadata-name-invalid` for an invalid sandbox id, `metadata-io`
   */
  async endGate(claim: ClaimIdentity, sandboxId: string): Promise<void> {
    this.#keepOut(claim, { state: 'ended', sandboxId });
  }

  /**
   * What the gate says; `undefined` if the claim has none, or if it says nothing: then containers wait.
   * @throws MetadataError `metadata-io`, `metadata-malformed`
   */
  async gateOf(claim: ClaimIdentity): Promise<Gate | undefined> {
    return holdDirectories(() => {
      const state = this.states.read(claim);
      if (state?.claim.uid !== claim.uid || !hasGate(state)) return undefined;
      return readGate(this.options.dataDir, claim);
    });
  }

  /** Removes what `prepare` and `update` created. It is fine if the claim is unknown, or known under a newer UID. */
  async unprepare(claim: ClaimIdentity): Promise<void> {
    holdDirectories(() => {
      const state = this.states.readForRemoval(claim);
      if (typeof state === 'object' && state.claim.uid === claim.uid) return this.#remove(state);
      this.#cdi.removeClaims([claim.uid]);
      this.#files.removeStrays(claim);
      if (typeof state !== 'object' && !this.states.isOfOther(claim)) this.#files.removeClaimDir(claim);
    });
  }

  /** The document in the files; `undefined` while there is none. */
  async read(claim: ClaimIdentity, request: string): Promise<MetadataDocument | undefined> {
    const base = baseRequest(request);
    const state = this.states.read(claim);
    if (state?.claim.uid !== claim.uid || findRequest(state.requests, base) === undefined) return undefined;
    return contentOf(state, base, this.options.driver).document;
  }

  /** Whether all containers of a prepared claim wait at the gate by themselves until they may start. */
  isGated(claim: ClaimIdentity): boolean {
    try {
      const state = this.states.read(claim);
      return state?.claim.uid === claim.uid && Object.values(state.requests).every(({ isGated }) => isGated === true);
    } catch {
      // An unreadable record is left to the calls that need it.
      return false;
    }
  }

  /** Whether the arguments of an OCI hook make a container wait for the claim. */
  isGateOf(claim: ClaimIdentity, hookArgs: readonly string[]): boolean {
    return isGateOf(this.options.dataDir, claim, hookArgs);
  }

  get #isEnabled(): boolean {
    return this.options.enabled ?? true;
  }

  /** @returns `undefined` if there is nothing to lay down */
  #nextState(record: ClaimRecord, contents: ReadonlyMap<string, PreparedContent>, kept: ClaimState | undefined) {
    const { attributesOf = () => undefined, bootId, gate } = this.options;
    const layouts = this.#isEnabled ? this.#layouts : [];
    const isGated = gate !== undefined;
    if (layouts.length === 0 && !isGated && kept === undefined) return undefined;
    const state = prepareState({ record, contents, layouts, isGated, bootId, attributesOf, now: this.now() }, kept);
    return state.layouts.length === 0 && !hasGate(state) ? undefined : state;
  }

  /** @returns `undefined` if a container gets nothing with this request */
  #containerEdits(state: ClaimState, base: string): ContainerEdits | undefined {
    const { dataDir, gate } = this.options;
    const mounts = this.#files.mounts(state, base);
    const isGated = gate !== undefined && requestOf(state, base).isGated === true;
    if (mounts.length === 0 && !isGated) return undefined;
    const hooks = isGated ? [gateHook(gate, dataDir, state.claim)] : undefined;
    return defined({ mounts: mounts.length === 0 ? undefined : mounts, hooks });
  }

  /** Before a file can be blank: wherever prepare is interrupted, no container starts with a blank file. */
  #closeGateUnlessValid(state: ClaimState, kept: ClaimState | undefined): void {
    const { dataDir } = this.options;
    // After a boot its content is obsolete, and without gated requests nothing reads it.
    const isObsolete = kept?.bootId !== state.bootId || !hasGate(state);
    // It was opened while metadata was off, or for fewer requests.
    const isTooOpen = () => findUnwritten(state) !== undefined && readGate(dataDir, state.claim)?.state === 'served';
    if (isObsolete || isTooOpen()) closeGate(dataDir, state.claim);
  }

  /** Whether containers of the claim wait for an update. */
  #isPending(state: ClaimState): boolean {
    if (hasGate(state)) return readGate(this.options.dataDir, state.claim)?.state !== 'served';
    return Object.values(state.requests).some(({ content }) => content === undefined);
  }

  /** The files of a claim whose record cannot be read stay as they are, so no container may start with them. */
  #readOrClose(claim: ClaimIdentity): ClaimState | undefined {
    try {
      return this.states.read(claim);
    } catch (error) {
      closeGate(this.options.dataDir, claim);
      throw error;
    }
  }

  #keepOut(claim: ClaimIdentity, gate: Gate): void {
    const { dataDir } = this.options;
    holdDirectories(() => {
      const state = this.states.read(claim);
      if (state?.claim.uid !== claim.uid || !hasGate(state)) return;
      const found = readGate(dataDir, claim);
      if (found?.state === 'served' && found.sandboxId !== gate.sandboxId) return;
      writeGate(dataDir, claim, gate);
    });
  }

  /** The state is removed last: after a crash it still says what is left. */
  #remove(state: ClaimState): void {
    this.#cdi.remove(state.claim.uid, Object.keys(state.requests));
    this.#files.remove(state);
  }
}
