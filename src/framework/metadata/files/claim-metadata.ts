import { isDeepStrictEqual } from 'node:util';
import { defined } from '../../../lib/defined.ts';
import { KeyedMutex } from '../../../lib/keyed-mutex.ts';
import { baseRequest, type ClaimIdentity, type DeviceMetadata, type MetadataDocument } from '../document/document.ts';
import { validateDevices } from '../document/validate.ts';
import { MetadataError } from '../errors.ts';
import { checkGateHook, closeGate, type Gate, gateHook, isGateOf, readGate, writeGate } from '../gate/gate.ts';
import type { WaitingSandbox } from '../gate/waiting-sandbox.ts';
import { defaultHostDirs, type HostDirs, type LayoutName } from '../layouts/layout.ts';
import { claimDirName } from '../layouts/paths.ts';
import { CdiSpecs, type ContainerEdits } from './cdi.ts';
import { type ClaimDir, countContents, listDirs, listWaiting, removeClaimless } from './claim-dirs.ts';
import { ClaimFiles } from './claim-files.ts';
import type { ClaimMetadataOptions, MetadataUpdate } from './claim-metadata-options.ts';
import type { ClaimRecord, PreparedContent } from './claim-record.ts';
import { RecordFiles } from './claim-records.ts';
import { type ClaimState, contentOf, findRequest, hasGate, requestOf } from './claim-state.ts';
import { ClaimStates } from './claim-states.ts';
import { HeldDirectories } from './held-directories.ts';
import { hostPath } from './host-file.ts';
import { checkAllWritten, checkOwnership, findUnwritten } from './ownership.ts';
import { prepareState, withContent } from './prepare-state.ts';

/**
 * The metadata files and CDI specs of the claims of one driver. Rules, all kept across restarts: before generation 1 a
 * deferred request has no file, or an empty one and a closed gate, so no container starts without it; generation never
 * decreases for the same claim UID; files that a container may have mounted are changed in place; another UID under the
 * same name starts from nothing. Calls for one claim name run in the order in which they came.
 */
export class ClaimMetadata {
  readonly #options: ClaimMetadataOptions;
  readonly #dirs: HostDirs;
  readonly #layouts: LayoutName[];
  readonly #files: ClaimFiles;
  readonly #states: ClaimStates;
  readonly #cdi: CdiSpecs;
  readonly #mutex = new KeyedMutex();

  /** @throws MetadataError `metadata-invalid` without a layout: a CDI spec that mounts nothing is not valid */
  constructor(options: ClaimMetadataOptions) {
    const { driver, cdiDir, dataDir, layouts } = options;
    if (layouts.length === 0) throw new MetadataError('metadata-invalid', 'no layout for device metadata is chosen');
    if (options.gate !== undefined) checkGateHook(options.gate);
    this.#options = options;
    this.#layouts = layouts.map(({ name }) => name);
    const { attributesDir = defaultHostDirs.attributesDir, downwardApiDir = defaultHostDirs.downwardApiDir } = options;
    this.#dirs = { dataDir, attributesDir, downwardApiDir };
    this.#states = new ClaimStates(options.records ?? new RecordFiles(dataDir), dataDir);
    this.#files = new ClaimFiles({ driver, dirs: this.#dirs, states: this.#states, later: options.later });
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
    return await this.#inTurn(record.claim, async (held) => {
      const { driver, onRecovered } = this.#options;
      const recovery = { driver, dirs: this.#dirs, now: this.#now(), held, ...defined({ onRecovered }) };
      const { state: found, isRecorded } = await this.#states.readOrRecover(record, recovery);
      const kept = found?.claim.uid === record.claim.uid ? found : undefined;
      const state = this.#nextState(record, contents, kept);
      // Everything is checked before anything is written.
      if (state !== undefined) this.#files.check(state);
      if (found !== undefined && (kept === undefined || state === undefined)) await this.#remove(found, held);
      if (state === undefined) {
        this.#options.onPrepared?.(record.claim);
        return new Map();
      }
      await this.#closeGateUnlessValid(state, kept, held);
      const ids = new Map<string, string>();
      const writeSpecs = async (gated: boolean) => {
        for (const base of Object.keys(state.requests)) {
          if ((requestOf(state, base).isGated === true) !== gated) continue;
          const edits = this.#containerEdits(state, base);
          if (edits === undefined) continue;
          await this.#cdi.write(state.claim.uid, base, edits);
          if (Object.hasOwn(record.requests, base)) ids.set(base, this.#cdi.deviceId(state.claim.uid, base));
        }
      };
      // Wherever this is interrupted: while a file can be blank, the spec that mounts it has the hook.
      await writeSpecs(true);
      if (!isRecorded || !isDeepStrictEqual(state, kept)) await this.#states.write(state, held);
      for (const base of Object.keys(state.requests)) await this.#files.layDown(state, base, held);
      await writeSpecs(false);
      this.#options.onPrepared?.(state.claim);
      if (await this.#isPending(state, held)) this.#options.onPending?.(state.claim);
      return ids;
    });
  }

  /**
   * Writes the current state of a request's devices; the list replaces the previous one as a whole. Nothing is written
   * if the file has this content already. Containers at the gate keep waiting: see `openGate`.
   * @throws MetadataError `metadata-not-prepared` if claim UID, request or devices are not what was prepared,
   * `metadata-invalid` if consumers need not accept it, `metadata-io`
   */
  async update(claim: ClaimIdentity, request: string, devices: DeviceMetadata[]): Promise<MetadataUpdate> {
    return await this.#inTurn(claim, async (held) => {
      const found = await this.#states.read(claim, held);
      if (!this.#isEnabled && found?.claim.uid !== claim.uid) return { generation: 0, isWritten: false };
      const state = checkOwnership(found, { claim, request, devices, driver: this.#options.driver });
      if (state.layouts.length === 0) return { generation: 0, isWritten: false };
      validateDevices(claim, request, devices);
      const base = baseRequest(request);
      const before = requestOf(state, base);
      const after = withContent(before, devices, this.#now());
      const next = { ...state, requests: { ...state.requests, [base]: after } };
      // The state is written first, so that no generation is ever given out twice.
      if (after !== before) await this.#states.write(next, held);
      const isWritten = await this.#files.layDown(next, base, held);
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
    await this.#inTurn(claim, async (held) => {
      const state = await this.#states.read(claim, held).catch(async (error: unknown) => {
        // The files stay as they are, so no container may start with them.
        await closeGate(this.#options.dataDir, claim, held);
        throw error;
      });
      if (state?.claim.uid !== claim.uid) return;
      await closeGate(this.#options.dataDir, claim, held);
      const over = Object.entries(state.requests).filter(([base]) => bases?.includes(base) ?? true);
      const withdrawn = over.map(([base, { content: _over, ...request }]) => [base, request]);
      const next = { ...state, requests: { ...state.requests, ...Object.fromEntries(withdrawn) } };
      const isVisible = over.some(([, { content }]) => content !== undefined);
      // The state first: if we are interrupted, the next call still knows that the content is withdrawn.
      if (isVisible) await this.#states.write(next, held);
      for (const [base] of over) await this.#files.layDown(next, base, held);
    });
  }

  /**
   * Lets the containers of a sandbox start, now and later. Containers of any other sandbox no longer can.
   * @throws MetadataError `metadata-not-prepared`; `metadata-not-written` if a request of the claim has no content yet;
   * `metadata-name-invalid` for an invalid sandbox id; `metadata-io`
   */
  async openGate(claim: ClaimIdentity, sandboxId: string): Promise<void> {
    await this.#inTurn(claim, async (held) => {
      const state = await this.#states.read(claim, held);
      if (!this.#isEnabled && state?.claim.uid !== claim.uid) return;
      checkAllWritten(state, claim);
      if (hasGate(state)) await writeGate(this.#options.dataDir, claim, { state: 'served', sandboxId }, held);
    });
  }

  /**
   * Tells the containers of a sandbox that they have to wait, and why: they fail with this reason when they time out. A
   * gate that is open for another sandbox stays open until `withdraw`.
   * @param reason turned into one line of at most 512 characters
   * @throws MetadataError `metadata-name-invalid` for an invalid sandbox id, `metadata-io`
   */
  async holdGate(claim: ClaimIdentity, sandboxId: string, reason: string): Promise<void> {
    await this.#keepOut(claim, { state: 'waiting', sandboxId, reason });
  }

  /**
   * Makes containers of a sandbox that is being stopped fail at once. A gate open for another sandbox stays open.
   * @throws MetadataError `metadata-name-invalid` for an invalid sandbox id, `metadata-io`
   */
  async endGate(claim: ClaimIdentity, sandboxId: string): Promise<void> {
    await this.#keepOut(claim, { state: 'ended', sandboxId });
  }

  /**
   * What the gate says; `undefined` if the claim has none, or if it says nothing: then containers wait.
   * @throws MetadataError `metadata-io`, `metadata-malformed`
   */
  async gateOf(claim: ClaimIdentity): Promise<Gate | undefined> {
    return await this.#inTurn(claim, async (held) => {
      const state = await this.#states.read(claim, held);
      if (state?.claim.uid !== claim.uid || !hasGate(state)) return undefined;
      return await readGate(this.#options.dataDir, claim, held);
    });
  }

  /**
   * Sandboxes whose containers are waiting at a gate. Cheap while there are none.
   * @returns `problems` says why an announcement, or the claim that it is for, could not be read
   * @throws MetadataError `metadata-io`
   */
  async waiting(): Promise<{ sandboxes: WaitingSandbox[]; problems: MetadataError[] }> {
    return await listWaiting(this.#states, this.#now());
  }

  /** Removes what `prepare` and `update` created. It is fine if the claim is unknown, or known under a newer UID. */
  async unprepare(claim: ClaimIdentity): Promise<void> {
    await this.#inTurn(claim, async (held) => {
      const state = await this.#states.readForRemoval(claim, held);
      if (state !== undefined && state !== 'unreadable' && state.claim.uid === claim.uid) {
        return await this.#remove(state, held);
      }
      await this.#cdi.removeClaim(claim.uid);
      await this.#files.removeStrays(claim);
      if (typeof state !== 'object' && !(await this.#states.isOfOther(claim)))
        await this.#files.removeClaimDir(claim, held);
    });
  }

  /** The metadata directories in the driver's own directory, with their claims. @throws MetadataError `metadata-io` */
  async list(): Promise<ClaimDir[]> {
    return await listDirs(this.#states);
  }

  /** How many requests have a file that containers find. @throws MetadataError `metadata-io` */
  async countFiles(): Promise<number> {
    return await countContents(this.#states, (state) => state.layouts.length > 0);
  }

  /**
   * Removes a directory for which `list` found neither a claim nor a problem, unless it belongs to a claim by now.
   * @returns whether it was removed
   * @throws MetadataError `metadata-io`; `metadata-malformed`, `metadata-version-unknown` if its record cannot be read
   */
  async removeUnclaimed(dir: string): Promise<boolean> {
    // The mutex of a claim that may be about to be prepared: its directory would have this name.
    return await this.#mutex.run(dir, () => removeClaimless(this.#states, dir));
  }

  /**
   * Files of claims in directories that are not the driver's own, in any layout. An instance that did not have such a
   * directory could not remove them. Files without content are left out.
   * @throws MetadataError `metadata-io`
   */
  async listShared(): Promise<{ path: string; claimUid: string; remove: () => Promise<void> }[]> {
    const found = await this.#files.listShared();
    return found.map(({ file, claimUid }) => ({
      path: hostPath(file),
      claimUid,
      remove: () => this.#files.removeShared(file),
    }));
  }

  /** The document in the files; `undefined` while there is none. */
  async read(claim: ClaimIdentity, request: string): Promise<MetadataDocument | undefined> {
    const base = baseRequest(request);
    const state = await this.#states.read(claim);
    if (state?.claim.uid !== claim.uid || findRequest(state.requests, base) === undefined) return undefined;
    return contentOf(state, base, this.#options.driver).document;
  }

  /**
   * Whether a path on the host is a file of a prepared claim whose content depends on the state of the devices in their
   * sandbox. Not those of `attributes-json`, which do not change after prepare.
   */
  isFileOf(claim: Pick<ClaimIdentity, 'namespace' | 'name'>, path: string): boolean {
    return this.#files.isContentFile(claim, path);
  }

  /** Whether a path on the host could be such a file, of any claim: a cheap check for those that are not. */
  isFilePlace(path: string): boolean {
    return this.#files.isContentPlace(path);
  }

  /** Whether all containers of a prepared claim wait at the gate by themselves until they may start. */
  isGated(claim: ClaimIdentity): boolean {
    try {
      const state = this.#states.readIn(claimDirName(claim));
      if (state?.claim.uid !== claim.uid) return false;
      return Object.values(state.requests).every(({ isGated }) => isGated === true);
    } catch {
      // An unreadable record is left to the calls that need it.
      return false;
    }
  }

  /** Whether the arguments of an OCI hook make a container wait for the claim. */
  isGateOf(claim: ClaimIdentity, hookArgs: readonly string[]): boolean {
    return isGateOf(this.#options.dataDir, claim, hookArgs);
  }

  get #isEnabled(): boolean {
    return this.#options.enabled ?? true;
  }

  /** @returns `undefined` if there is nothing to lay down */
  #nextState(record: ClaimRecord, contents: ReadonlyMap<string, PreparedContent>, kept: ClaimState | undefined) {
    const { attributesOf = () => undefined, bootId, gate } = this.#options;
    const layouts = this.#isEnabled ? this.#layouts : [];
    const isGated = gate !== undefined;
    if (layouts.length === 0 && !isGated && kept === undefined) return undefined;
    const state = prepareState({ record, contents, layouts, isGated, bootId, attributesOf, now: this.#now() }, kept);
    return state.layouts.length === 0 && !hasGate(state) ? undefined : state;
  }

  /** @returns `undefined` if a container gets nothing with this request */
  #containerEdits(state: ClaimState, base: string): ContainerEdits | undefined {
    const { dataDir, gate } = this.#options;
    const mounts = this.#files.mounts(state, base);
    const isGated = gate !== undefined && requestOf(state, base).isGated === true;
    if (mounts.length === 0 && !isGated) return undefined;
    return {
      ...(mounts.length === 0 ? {} : { mounts }),
      ...(isGated ? { hooks: [gateHook(gate, dataDir, state.claim)] } : {}),
    };
  }

  /** Before a file can be blank: wherever prepare is interrupted, no container starts with a blank file. */
  async #closeGateUnlessValid(state: ClaimState, kept: ClaimState | undefined, held: HeldDirectories): Promise<void> {
    const { dataDir } = this.#options;
    // After a boot its content is obsolete, and without gated requests nothing reads it.
    const isObsolete = kept?.bootId !== state.bootId || !hasGate(state);
    // It was opened while metadata was off, or for fewer requests.
    const isTooOpen = async () =>
      findUnwritten(state) !== undefined && (await readGate(dataDir, state.claim, held))?.state === 'served';
    if (isObsolete || (await isTooOpen())) await closeGate(dataDir, state.claim, held);
  }

  /** Whether containers of the claim wait for an update. */
  async #isPending(state: ClaimState, held: HeldDirectories): Promise<boolean> {
    if (hasGate(state)) return (await readGate(this.#options.dataDir, state.claim, held))?.state !== 'served';
    return Object.values(state.requests).some(({ content }) => content === undefined);
  }

  async #keepOut(claim: ClaimIdentity, gate: Gate): Promise<void> {
    const { dataDir } = this.#options;
    await this.#inTurn(claim, async (held) => {
      const state = await this.#states.read(claim, held);
      if (state?.claim.uid !== claim.uid || !hasGate(state)) return;
      const found = await readGate(dataDir, claim, held);
      if (found?.state === 'served' && found.sandboxId !== gate.sandboxId) return;
      await writeGate(dataDir, claim, gate, held);
    });
  }

  #now(): Date {
    return this.#options.now?.() ?? new Date();
  }

  /** Runs one task at a time for each claim name. Directories that the task opens stay open until it ends. */
  async #inTurn<T>(claim: ClaimIdentity, task: (held: HeldDirectories) => Promise<T>): Promise<T> {
    return await this.#mutex.run(claimDirName(claim), async () => {
      using held = new HeldDirectories();
      return await task(held);
    });
  }

  /** The state is removed last: after a crash it still says what is left. */
  async #remove(state: ClaimState, held: HeldDirectories): Promise<void> {
    await this.#cdi.remove(state.claim.uid, Object.keys(state.requests));
    await this.#files.remove(state, held);
  }
}
