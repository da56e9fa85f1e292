import type { MetadataVersion } from '../document/codec.ts';
import type { DeviceName } from '../document/device-key.ts';
import type { ClaimIdentity, DeviceAttributes } from '../document/document.ts';
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
  /** The driver's directory below the kubelet's `plugins`: files go to `dra-device-metadata/` in it. */
  dataDir: string;
  cdiDir: string;
  /** Where the records of claims are. Default: in files beside those of the claims. */
  records?: ClaimRecords;
  /**
   * That claims get when they are prepared. A claim keeps those that it has until it is unprepared, whatever this says:
   * another instance, or an earlier one, may have prepared it.
   */
  layouts: readonly Layout[];
  /** The same for versions of the layout `v1`. Default: all that this package writes. */
  versions?: readonly MetadataVersion[];
  /**
   * Whether claims that are prepared from now on get files, CDI specs and mounts. Default: `false`, as KEP-5304 has its flag. Claims
   * that have files keep them. A claim gets a spec all the same if containers have to wait at its gate.
   */
  enabled?: boolean;
  /**
   * With it, containers of a claim with deferred requests wait in this hook until `openGate` names their sandbox,
   * whatever the layouts, and also without files. Absent: their files are missing until the first update, and the
   * runtime refuses the containers. A claim switches from one to the other when it is prepared again.
   */
  gate?: GateHook;
  /**
   * Begins the name of a variable that containers get with the files of each request that has no gate, so that `isUsedBy` knows
   * them. Absent: no such variable.
   */
  marker?: string;
  /** Attributes in a device's ResourceSlice, for layouts that show them; `undefined` if it is not published. */
  attributesOf?: (device: DeviceName) => DeviceAttributes | undefined;
  /** Of the node's current boot. With it, deferred metadata of an earlier boot is hidden at the next prepare. */
  bootId?: string;
  /**
   * Called at the end of each prepare after which containers of the claim wait for an update and `openGate`. If the
   * claim was served before, its pod's sandbox has to be served again.
   */
  onPending?: (claim: ClaimIdentity) => void;
  /** Called when a prepare writes the damaged record of a claim anew. */
  onRecovered?: (claim: ClaimIdentity, problem: MetadataError) => void;
  /** Runs a task later, the removal of a claim's files, whose errors it may ignore. Default: unprepare waits for it. */
  later?: Later;
  /** For `lastTransitionTime` in the layout `downward-api`. Default: the system's clock. */
  now?: () => Date;
}

/** What of a container says which claims it has: its variables, and its OCI hooks. */
export interface ContainerParts {
  /** As `NAME=value`. */
  env: readonly string[];
  createRuntimeHooks: readonly { args: readonly string[] }[];
}

/** More claims than a container has: one with more marks than that counts as a user of every claim. */
const mostMarks = 256;

/** What there is on the host of claims, whichever instance has prepared them. Methods throw MetadataError `metadata-io`. */
export class ClaimDirs {
  protected readonly options: ClaimMetadataOptions;
  protected readonly hostDirs: HostDirs;
  protected readonly states: ClaimStates;
  /** By the variables of a container: those that begin with the marker, up to their `=`. Tenants write them, too. */
  readonly #marks = new WeakMap<readonly string[], readonly string[]>();

  constructor(options: ClaimMetadataOptions) {
    const { dataDir, records = new RecordFiles(dataDir) } = options;
    const { attributesDir = defaultHostDirs.attributesDir, downwardApiDir = defaultHostDirs.downwardApiDir } = options;
    this.options = options;
    this.hostDirs = { dataDir, attributesDir, downwardApiDir };
    this.states = new ClaimStates(records, dataDir);
  }

  /** The driver whose claims these are. */
  get driver(): string {
    return this.options.driver;
  }

  protected now(): Date {
    return this.options.now?.() ?? new Date();
  }

  /** Names of the directories of claims in the driver's own directory, of records, and of directories that are being removed. */
  dirs(): string[] {
    const { claims, removed } = this.states.dirs();
    return [...claims, ...removed];
  }

  /** Whether a container waits at the gate of a claim. */
  hasGateOf(claim: ClaimIdentity, { createRuntimeHooks }: ContainerParts): boolean {
    return createRuntimeHooks.some(({ args }) => isGateOf(this.options.dataDir, claim, args));
  }

  /** Whether a container has a request of a claim. */
  isUsedBy(claim: ClaimIdentity, container: ContainerParts): boolean {
    const { marker } = this.options;
    const marks = this.#claimMarksOf(container);
    const isMarked = marker !== undefined && (marks.length > mostMarks || marks.includes(variableOf(marker, claim)));
    return isMarked || this.hasGateOf(claim, container);
  }

  /** Whether a container has a request of any claim: a cheap check for those that have none. */
  isAnyUsedBy(container: ContainerParts): boolean {
    const isMarked = this.#claimMarksOf(container).length > 0;
    return isMarked || container.createRuntimeHooks.some(({ args }) => isGateOf(this.options.dataDir, undefined, args));
  }

  /** Returns whether containers show that they use a claim that is prepared now: by its gate, or by the mount of a file. */
  isShownByContainers(claim: ClaimIdentity): boolean {
    if (this.options.enabled === true || this.options.gate !== undefined) return true;
    // Files of a claim from before metadata was switched off stay.
    const kept = this.states.readForRemoval(claim);
    return typeof kept === 'object' && kept.claim.uid === claim.uid && kept.layouts.length > 0;
  }

  /**
   * The mounts of a container that has several requests for one extended resource, in place of those that CDI gives it for each of
   * them. Drivers add them over NRI; none for any other container.
   * @throws MetadataError as the record cannot be read
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

  /** Reads the variables of a container once: they are compared with every claim of the node. */
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

  /** Whether there is a record of a claim that can be read. @throws as the driver's own records */
  isRecorded(claim: ClaimIdentity): boolean {
    const state = this.states.readForRemoval(claim);
    return typeof state === 'object' && state.claim.uid === claim.uid;
  }

  /** Removes a directory for which there is no claim, and its record. */
  removeDir(dir: string): void {
    removeTree({ base: this.hostDirs.dataDir, parts: [metadataDirName, dir] });
    this.options.records?.remove(dir);
  }

  /** How many requests have a file that containers find, as far as records can be read. */
  async countFiles(): Promise<number> {
    const withFiles = this.states.readable().filter(({ layouts }) => layouts.length > 0);
    const requests = withFiles.flatMap((state) => Object.values(state.requests));
    return requests.filter(({ content }) => content !== undefined).length;
  }

  /**
   * Sandboxes whose containers are waiting at a gate, with the claim of the directory that they are announced in. Cheap
   * while there are none.
   * @returns `problems` says why an announcement, or the claim that it is for, could not be read
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

/**
 * The layouts that prepared claims have, as far as their records can be read.
 * @throws MetadataError `metadata-io`
 */
export function readLayoutsInUse(records: ClaimRecords, dataDir: string): Set<LayoutName> {
  const states = new ClaimStates(records, dataDir);
  return new Set(states.readable().flatMap(({ layouts }) => layouts));
}
