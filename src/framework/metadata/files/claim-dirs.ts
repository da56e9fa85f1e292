import { join } from 'node:path';
import { readBootId } from '../../../lib/boot-id.ts';
import type { MetadataVersion } from '../document/codec.ts';
import type { DeviceName } from '../document/device-key.ts';
import type { ClaimIdentity, ClaimName, DeviceAttributes } from '../document/document.ts';
import { MetadataError } from '../errors.ts';
import { type GateHook, isGateOf } from '../gate/gate.ts';
import { readAnnouncements, type WaitingSandbox } from '../gate/waiting-sandbox.ts';
import { defaultHostDirs, type HostDirs, type Layout, type LayoutName, type SharedDirs } from '../layouts/layout.ts';
import { metadataDirName } from '../layouts/layout-v1.ts';
import type { ContainerEdits } from './cdi.ts';
import { variableOf } from './claim-files.ts';
import { type ClaimRecords, RecordFiles } from './claim-records.ts';
import { ClaimStates } from './claim-states.ts';
import { containerFilesOf } from './container-files.ts';
import { hostPath, type Later, removeTree } from './host-file.ts';

export interface ClaimMetadataOptions extends Partial<SharedDirs> {
  driver: string;
  /** The driver's directory below the kubelet's `plugins`: files go to its `dra-device-metadata/`. */
  dataDir: string;
  cdiDir: string;
  /** Store of claim records. Default: files beside the directories of claims. */
  records?: ClaimRecords;
  /**
   * Layouts for claims that are prepared from now on. A claim keeps the layouts of earlier prepares until it is unprepared:
   * another instance may have prepared it.
   */
  layouts: readonly Layout[];
  /**
   * Versions of the layout `v1` for claims that are prepared from now on. A claim keeps the versions of earlier prepares, as
   * it keeps layouts. Default: all that this package writes.
   */
  versions?: readonly MetadataVersion[];
  /**
   * Whether claims that are prepared from now on get files, CDI specs and mounts. Default: `false`, as for the flag of
   * KEP-5304. Claims that have files keep them. Even with `false`, a claim gets a spec if its containers must wait at its gate.
   */
  enabled?: boolean;
  /**
   * Hook in which containers of a claim with deferred requests wait until `openGate` names their sandbox, with any layout and
   * also without files. Absent: no gate; metadata files are missing until the first update, and the runtime refuses the
   * containers. A claim switches between the two when it is prepared again, and loses its gate if its hook is lost.
   */
  gate?: GateHook;
  /**
   * Prefix of an environment variable by which `isUsedBy` recognizes the containers of a claim. Containers get the variable
   * with the metadata of each request that has no gate. Absent: no such variable.
   */
  marker?: string;
  /** Returns a device's attributes in its ResourceSlice, for layouts that show them; `undefined` if it is not published. */
  attributesOf?: (device: DeviceName) => DeviceAttributes | undefined;
  /** ID of the current boot. A prepare hides content that an update wrote before this boot. Default: the kernel's. */
  bootId?: string;
  /**
   * Called at the end of each prepare after which containers of the claim wait for an update and `openGate`. A sandbox that was
   * served before must be served again.
   */
  onPending?: (claim: ClaimIdentity) => void;
  /** Called when a prepare rewrites a claim's damaged record. */
  onRecovered?: (claim: ClaimIdentity, problem: MetadataError) => void;
  /**
   * Schedules a task for later, which removes a claim's files and may ignore errors. Default: unprepare removes the files
   * itself.
   */
  later?: Later;
  /** Clock for `lastTransitionTime` in the layout `downward-api`. Default: the system's clock. */
  now?: () => Date;
}

/** The variables and OCI hooks of a container, which show the claims that it uses. */
export interface ContainerParts {
  /** Environment variables, as `NAME=value`. */
  env: readonly string[];
  createRuntimeHooks: readonly { args: readonly string[] }[];
}

/** Number of marks above which a container counts as a user of every claim. No container has so many claims. */
const mostMarks = 256;

/** Files of claims on the host, whichever instance prepared them. Methods throw MetadataError `metadata-io`. */
export class ClaimDirs {
  protected readonly options: ClaimMetadataOptions & { bootId: string };
  protected readonly hostDirs: HostDirs;
  protected readonly states: ClaimStates;
  /** Names that begin with the marker, cached by the variables of a container. Tenants write variables, too. */
  readonly #marks = new WeakMap<readonly string[], readonly string[]>();

  /** Reads the ID of the boot unless it is given. @throws NetdraError `boot-id-unknown` */
  constructor(options: ClaimMetadataOptions) {
    const { dataDir, records = new RecordFiles(dataDir) } = options;
    const { attributesDir = defaultHostDirs.attributesDir, downwardApiDir = defaultHostDirs.downwardApiDir } = options;
    this.options = { ...options, bootId: options.bootId ?? readBootId() };
    this.hostDirs = { dataDir, attributesDir, downwardApiDir };
    this.states = new ClaimStates(records, dataDir);
  }

  /** Name of the driver. */
  get driver(): string {
    return this.options.driver;
  }

  /** Prefixes of the host paths of all files that containers mount. `isRequestUsedBy` recognizes requests by these paths. */
  get mountSources(): string[] {
    const { dataDir, attributesDir, downwardApiDir } = this.hostDirs;
    return [join(dataDir, metadataDirName), attributesDir, downwardApiDir].map((dir) => join(dir, '/'));
  }

  protected now(): Date {
    return this.options.now?.() ?? new Date();
  }

  /**
   * Returns the names of directories in the driver's metadata directory: of claims, of claims with only a record, and of
   * directories that are being removed.
   */
  dirs(): string[] {
    const { claims, removed } = this.states.dirs();
    return [...claims, ...removed];
  }

  /** Returns whether a container waits at the gate of a claim. */
  hasGateOf(claim: ClaimIdentity, { createRuntimeHooks }: ContainerParts): boolean {
    return createRuntimeHooks.some(({ args }) => isGateOf(this.options.dataDir, claim, args));
  }

  /** Returns whether a container uses a request of the claim. */
  isUsedBy(claim: ClaimIdentity, container: ContainerParts): boolean {
    const { marker } = this.options;
    const marks = this.#claimMarksOf(container);
    const isMarked = marker !== undefined && (marks.length > mostMarks || marks.includes(variableOf(marker, claim)));
    return isMarked || this.hasGateOf(claim, container);
  }

  /** Returns whether a container uses a request of any claim: a cheap check to skip the other containers. */
  isAnyUsedBy(container: ContainerParts): boolean {
    const isMarked = this.#claimMarksOf(container).length > 0;
    return isMarked || container.createRuntimeHooks.some(({ args }) => isGateOf(this.options.dataDir, undefined, args));
  }

  /** Returns whether containers of a sandbox may start with the claim. @throws MetadataError if the record cannot be read */
  isServedFor(claim: ClaimIdentity, sandboxId: string): boolean {
    const state = this.states.read(claim);
    return state?.claim.uid === claim.uid && state.servedBy === sandboxId;
  }

  /** Returns whether containers show that they use a prepared claim: by its gate, or by the mount of a file. */
  isShownByContainers(claim: ClaimIdentity): boolean {
    if (this.options.enabled === true || this.options.gate !== undefined) return true;
    // A claim keeps the files that it had when metadata was switched off.
    const kept = this.states.readForRemoval(claim);
    return typeof kept === 'object' && kept.claim.uid === claim.uid && kept.layouts.length > 0;
  }

  /**
   * Returns the mounts of a container that has several requests for one extended resource. They replace CDI's mounts for these
   * requests, and drivers add them over NRI. Returns none for any other container.
   * @throws MetadataError if the record cannot be read
   */
  mountsFor(claim: ClaimIdentity, container: string): NonNullable<ContainerEdits['mounts']> {
    const state = this.states.read(claim);
    if (state?.claim.uid !== claim.uid) return [];
    const files = containerFilesOf(state, this.hostDirs, this.driver).filter((file) => file.container === container);
    return files.flatMap(({ file, containerPaths }) =>
      containerPaths.map((containerPath) => ({
        hostPath: hostPath(file),
        containerPath,
        options: ['ro', 'bind'],
      })),
    );
  }

  /**
   * Returns the claims' markers among a container's variables. Reads the variables once, since the markers are compared with
   * every claim of the node.
   */
  #claimMarksOf({ env }: ContainerParts): readonly string[] {
    const { marker } = this.options;
    const known = this.#marks.get(env);
    if (known !== undefined || marker === undefined) return known ?? [];
    const marks: string[] = [];
    for (const variable of env) {
      if (variable.startsWith(marker)) marks.push(variable.slice(0, variable.indexOf('=') + 1));
      if (marks.length > mostMarks) break;
    }
    this.#marks.set(env, marks);
    return marks;
  }

  /** Returns whether a readable record of a claim exists. @throws errors of the driver's own records */
  isRecorded(claim: ClaimIdentity): boolean {
    const state = this.states.readForRemoval(claim);
    return typeof state === 'object' && state.claim.uid === claim.uid;
  }

  /**
   * Returns whether a claim of this name is prepared. An unreadable record counts as prepared. @throws errors of the driver's
   * own records
   */
  async isNamePrepared(claim: ClaimName): Promise<boolean> {
    try {
      return this.states.read(claim) !== undefined;
    } catch (error) {
      // The calls that need the record report any other error.
      if (error instanceof MetadataError) return error.code !== 'metadata-name-invalid';
      throw error;
    }
  }

  /** Removes a directory that belongs to no claim, and its record. */
  removeDir(dir: string): void {
    removeTree({ base: this.hostDirs.dataDir, parts: [metadataDirName, dir] });
    this.options.records?.remove(dir);
  }

  /** Returns the number of requests whose file is visible to containers. Ignores claims with an unreadable record. */
  async countFiles(): Promise<number> {
    const withFiles = this.states.readable().filter(({ layouts }) => layouts.length > 0);
    const requests = withFiles.flatMap((state) => Object.values(state.requests));
    return requests.filter(({ content }) => content !== undefined).length;
  }

  /**
   * Returns the sandboxes whose containers wait at a gate, each with the claim in whose directory its announcement is. Cheap if
   * no container waits.
   * @returns `problems` has an error for each announcement, or its claim, that could not be read
   */
  async waiting(): Promise<{ sandboxes: WaitingSandbox[]; problems: MetadataError[] }> {
    const sandboxes: WaitingSandbox[] = [];
    const problems: MetadataError[] = [];
    const now = this.now();
    for (const dir of this.states.dirs().claims) {
      try {
        const found = readAnnouncements(this.hostDirs.dataDir, dir, now);
        problems.push(...found.problems);
        const claim = found.announcements.length === 0 ? undefined : this.states.readIn(dir)?.claim;
        if (claim !== undefined) sandboxes.push(...found.announcements.map((each) => ({ claim, ...each })));
      } catch (error) {
        if (!(error instanceof MetadataError)) throw error;
        problems.push(error);
      }
    }
    return { sandboxes, problems };
  }
}

/** Returns the layouts of prepared claims. Ignores claims with an unreadable record. @throws MetadataError `metadata-io` */
export function readLayoutsInUse(records: ClaimRecords, dataDir: string): Set<LayoutName> {
  const states = new ClaimStates(records, dataDir);
  return new Set(states.readable().flatMap(({ layouts }) => layouts));
}
