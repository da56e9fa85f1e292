import type { DeviceName } from '../document/device-key.ts';
import type { ClaimIdentity, DeviceMetadata } from '../document/document.ts';

/** One request of a prepared claim. */
export interface RequestRecord {
  /** Full reference to the request, `request` or `request/subrequest`. */
  name: string;
  devices: DeviceName[];
  /** Extended resource names under which containers may have asked for the request, instead of by a claim. */
  extendedResources?: readonly string[];
  /** Containers that have another request for the same resource, too: see `ContainerFile`. */
  sharers?: readonly string[];
}

/** A driver's record of a prepared claim. */
export interface ClaimRecord {
  claim: ClaimIdentity;
  /** Name of the claim in its pod, if it came from a template; empty if the annotation exists and is empty. */
  podClaimName?: string;
  /** Whether the claim's pod also uses a claim whose own name is `podClaimName`. */
  hasNamesake?: true;
  /** UID of the pod that the claim is reserved for; the first one if there are several. */
  podUid?: string;
  /** UIDs of the other pods for which the claim is reserved. */
  otherPodUids?: readonly string[];
  /** Requests by base name. */
  requests: Record<string, RequestRecord>;
}

/** Content of a request at the prepare of its claim: its devices, or `deferred` if an update will supply them. */
export type PreparedContent = DeviceMetadata[] | 'deferred';

/** A claim whose files are to be created: the driver's record, and the content of its requests. */
export interface PreparedRecord {
  record: ClaimRecord;
  /** Contents by base name; a request without an entry is deferred. */
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
