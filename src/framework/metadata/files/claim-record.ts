import type { ClaimIdentity, DeviceMetadata } from '../document/document.ts';

/** A device as a driver names it. */
export interface DeviceName {
  pool: string;
  name: string;
}

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
