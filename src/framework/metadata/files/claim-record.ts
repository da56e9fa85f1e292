import type { DeviceName } from '../document/device-key.ts';
import type { ClaimIdentity, DeviceMetadata } from '../document/document.ts';

/** One request of a prepared claim. */
export interface RequestRecord {
  /** The full reference, `request` or `request/subrequest`. */
  name: string;
  devices: DeviceName[];
  /** Names by which its container may have asked for it instead of by a claim. */
  extendedResources?: readonly string[];
  /** Containers that have another request for the same resource, too: see `ContainerFile`. */
  sharers?: readonly string[];
}

/** What the driver prepared for a claim. */
export interface ClaimRecord {
  claim: ClaimIdentity;
  /** The pod's name for it if it came from a template; empty if the annotation exists and is empty. */
  podClaimName?: string;
  /** UID of the pod that it is for, the first of them if it is reserved for several. */
  podUid?: string;
  /** UIDs of the others. */
  otherPodUids?: readonly string[];
  /** By base name. */
  requests: Record<string, RequestRecord>;
}

/** What is known about a request when its claim is prepared: its devices, or that they follow in an update. */
export type PreparedContent = DeviceMetadata[] | 'deferred';

/** A claim to be laid down: what the driver prepared, and what is known about each of its requests. */
export interface PreparedRecord {
  record: ClaimRecord;
  /** By base name; a request without an entry is deferred. */
  contents: ReadonlyMap<string, PreparedContent>;
  /**
   * Called in the step that writes the record, for what is to be stored with it. From then on, files and gate follow from the
   * record. What it throws fails the prepare of the claim.
   */
  commit?: (() => void) | undefined;
}

/** A claim whose files are to be removed. */
export interface UnpreparedRecord {
  claim: ClaimIdentity;
  /**
   * Called in the step that removes the record, after all files; also for a claim without a record. What it throws fails the
   * unprepare of the claim.
   */
  discard?: (() => void) | undefined;
}
