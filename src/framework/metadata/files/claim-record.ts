import type { DeviceName } from '../document/device-key.ts';
import type { ClaimIdentity, DeviceMetadata } from '../document/document.ts';

/** One request of a prepared claim. */
export interface RequestRecord {
  /** The full reference, `request` or `request/subrequest`. */
  name: string;
  devices: DeviceName[];
  /** Extended resource names under which containers may have requested it, instead of by a claim. */
  extendedResources?: readonly string[];
  /** Containers that have another request for the same resource, too: see `ContainerFile`. */
  sharers?: readonly string[];
}

/** A driver's record of a prepared claim. */
export interface ClaimRecord {
  claim: ClaimIdentity;
  /** Name of the claim in its pod, if it came from a template; empty if the annotation exists and is empty. */
  podClaimName?: string;
  /** Whether its pod also uses a claim whose own name is `podClaimName`. */
  hasNamesake?: true;
  /** UID of the pod that the claim is reserved for; the first one if there are several. */
  podUid?: string;
  /** UIDs of the other pods. */
  otherPodUids?: readonly string[];
  /** Requests by base name. */
  requests: Record<string, RequestRecord>;
}

/** What is known about a request when its claim is prepared: its devices, or that they follow in an update. */
export type PreparedContent = DeviceMetadata[] | 'deferred';

/** A claim whose files are to be created: the driver's record, and what is known about each request. */
export interface PreparedRecord {
  record: ClaimRecord;
  /** By base name; a request without an entry is deferred. */
  contents: ReadonlyMap<string, PreparedContent>;
  /**
   * Called in the step that writes the record, for data that is stored with it. From then on, files and gate follow from
   * the record. An exception fails the prepare of the claim.
   */
  commit?: (() => void) | undefined;
}

/** A claim whose files are to be removed. */
export interface UnpreparedRecord {
  claim: ClaimIdentity;
  /**
   * Called in the step that removes the record, after all files; also for a claim without a record. An exception fails the
   * unprepare of the claim.
   */
  discard?: (() => void) | undefined;
}
