/** Pauses before retries, and polling intervals, of all components. All values are milliseconds. */

/**
 * Number of consecutive refusals after which a refusal counts as permanent: an API server that starts refuses some requests
 * until it has read all roles.
 */
export const passingRefusals = 5;

/** Pauses after failures; each consecutive failure doubles the pause. */
export const pauses = {
  /**
   * Passes of a sandbox, for which a pod waits. The pauses keep growing for work that succeeds and fails again within
   * `quietMs`, such as attaching a VF that a process keeps moving.
   */
  sandbox: { firstMs: 500, longestMs: 5_000, quietMs: 10_000 },
  /** Publishing of slices: the scheduler needs them soon, and an API server takes some seconds to restart. */
  slices: { firstMs: 1_000, longestMs: 30_000 },
  /** Conflicts with another writer of a slice, after which an immediate retry nearly always helps. */
  sliceConflict: { firstMs: 50, longestMs: 30_000 },
  /** Reverts of changes by other clients: two rival writers must not overload the API server. */
  sliceRepair: { firstMs: 1_000, longestMs: 60_000 },
  /** Permanent refusals by the API server, which end only with a change of its configuration. */
  refused: { firstMs: 300_000, longestMs: 300_000 },
  claimStatus: { firstMs: 500, longestMs: 30_000 },
  /** Missing permission for the status of claims. It may be granted at any time, and every claim of the node is retried. */
  claimStatusForbidden: { firstMs: 500, longestMs: 300_000 },
  /** Conflicts with other writers of one claim's status; each pause is a random part of this. */
  claimStatusConflict: { firstMs: 20, longestMs: 320 },
  /** Events, which lose their value with time: an event is dropped after its sixth failure, half a minute later. */
  event: { firstMs: 1_000, longestMs: 30_000 },
  /** Status of the node, for which no pod waits. After `quietMs` without failures the pauses start anew. */
  nodeView: { firstMs: 2_000, longestMs: 120_000, quietMs: 120_000 },
  /** Failed watches; after each pause the objects are listed again. */
  watch: { firstMs: 1_000, longestMs: 60_000 },
  /** Failed attempts to list objects. */
  list: { firstMs: 1_000, longestMs: 60_000 },
  listRefused: { firstMs: 1_000, longestMs: 300_000 },
  /**
   * Extra rounds of all repairs that tasks request repeatedly, such as a repair that has no effect. The pauses never exceed the
   * time between regular rounds.
   */
  reconcile: { firstMs: 1_000, longestMs: Number.POSITIVE_INFINITY },
  /**
   * Reads of a pod's interfaces while its network keeps changing. After `quietMs` without changes the next read comes without
   * delay.
   */
  follow: { firstMs: 250, longestMs: 30_000, quietMs: 10_000 },
  /** Repairs of a VF's settings that its PF lost and now rejects: at most one attempt per round. */
  drift: { firstMs: 1_000, longestMs: 300_000 },
  /**
   * Temporary refusals of the kernel, such as during the reset of a VF or when memory is short. After `untilMs` they are
   * errors.
   */
  busy: { firstMs: 20, longestMs: 320, untilMs: 1_000 },
} as const;

/** Polling intervals for changes that no event reports. */
export const periods = {
  /** File lock that another process holds, for example during a rolling update. */
  fileLock: 10,
  /** File lock, if the kernel reports when the other process closes the file. */
  fileLockReported: 250,
  /** ResourceSlices, to find changes that the watch may have missed. */
  sliceRecheck: 300_000,
  /** DeviceClasses, to find changes that the watch may have missed, or that were made while no watch was open. */
  deviceClasses: 60_000,
  /** Deleted NetworkDevicePolicy, until the deletion counts: API servers show the deletion of its CRD only seconds later. */
  policyDeletion: 10_000,
  /** Sandboxes whose containers wait at the gate. */
  waitingSandboxes: 1_000,
  /** Deleted network namespaces, whose VFs are back on the host. */
  namespaceEnds: 1_000,
  /** Pods that are deleted while their containers wait. */
  deletedPods: 2_000,
  /** Claims reserved both for a pod that waits and for an earlier pod without containers. */
  sharedReservations: 5_000,
} as const;
