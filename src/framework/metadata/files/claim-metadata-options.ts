import type { ClaimIdentity, DeviceAttributes } from '../document/document.ts';
import type { MetadataError } from '../errors.ts';
import type { GateHook } from '../gate/gate.ts';
import type { HostDirs, Layout } from '../layouts/layout.ts';
import type { DeviceName } from './claim-record.ts';
import type { ClaimRecords } from './claim-records.ts';

export interface ClaimMetadataOptions extends Partial<Omit<HostDirs, 'dataDir'>> {
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
  /** `false`: no files for new claims; those that are laid down already keep theirs. Default: `true`. */
  enabled?: boolean;
  /**
   * With it, containers of a claim with deferred requests wait in this hook until `openGate` names their sandbox,
   * whatever the layouts, and also without files. Absent: their files are missing until the first update, and the
   * runtime refuses the containers. A claim switches from one to the other when it is prepared again.
   */
  gate?: GateHook;
  /** Attributes in a device's ResourceSlice, for layouts that show them; `undefined` if it is not published. */
  attributesOf?: (device: DeviceName) => DeviceAttributes | undefined;
  /** Of the node's current boot. With it, deferred metadata of an earlier boot is hidden at the next prepare. */
  bootId?: string;
  /** Called at the end of each prepare: everything that containers will mount is laid down. What it throws fails the prepare. */
  onPrepared?: (claim: ClaimIdentity) => void;
  /**
   * Called at the end of each prepare after which containers of the claim wait for an update and `openGate`. If the
   * claim was served before, its pod's sandbox has to be served again.
   */
  onPending?: (claim: ClaimIdentity) => void;
  /** Called when a prepare writes the damaged record of a claim anew. */
  onRecovered?: (claim: ClaimIdentity, problem: MetadataError) => void;
  /** Runs a task in the background: the removal of a claim's files. Default: unprepare waits for it. */
  later?: (task: () => Promise<void>) => void;
  /** For `lastTransitionTime` in the layout `downward-api`. Default: the system's clock. */
  now?: () => Date;
}

/** Result of an update. */
export interface MetadataUpdate {
  /** Of the file; 0 if metadata is off and the claim has no file. */
  generation: number;
  /** Whether a file was written; `false` if all of them had this content already. */
  isWritten: boolean;
}
