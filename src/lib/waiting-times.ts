/** Pauses before retries, and polling intervals, of all components. Milliseconds. */

/**
 * Consecutive refusals after which a refusal counts as permanent: an API server that starts refuses some requests until it
 * has read all roles.
 */
export const passingRefusals = 5;

/** Pauses after failures; each consecutive failure doubles the pause. */
export const pauses = {
  /**
   * A pod waits for it. The pauses keep growing for work that succeeds and fails again within `quietMs`, such as a VF that
   * a process keeps moving.
   */
  sandbox: { firstMs: 500, longestMs: 5_000, quietMs: 10_000 },
  /** The scheduler needs the slices soon, and an API server takes some seconds to restart. */
  slices: { firstMs: 1_000, longestMs: 30_000 },
  /** A conflict means that another writer was quicker: an immediate retry nearly always helps. */
  sliceConflict: { firstMs: 50, longestMs: 30_000 },
  /** Changes by others are reverted; two rival writers must not overload the API server. */
  sliceRepair: { firstMs: 1_000, longestMs: 60_000 },
  /** A permanent refusal ends only with a change of the server's configuration. */
  refused: { firstMs: 300_000, longestMs: 300_000 },
  claimStatus: { firstMs: 500, longestMs: 30_000 },
  /** A permission may be granted at any time, and every claim of the node is retried. */
  claimStatusForbidden: { firstMs: 500, longestMs: 300_000 },
  /** Conflicts with other writers of one claim; each pause is a random part of this. */
  claimStatusConflict: { firstMs: 20, longestMs: 320 },
  /** Events lose their value: one is dropped after the sixth failure, half a minute later. */
  event: { firstMs: 1_000, longestMs: 30_000 },
  /** Status of the node, which no pod waits for. After `quietMs` without failures the pauses start anew. */
  nodeView: { firstMs: 2_000, longestMs: 120_000, quietMs: 120_000 },
  /** Pauses between lists until the watch is restored. */
  watch: { firstMs: 1_000, longestMs: 60_000 },
  /** Pauses before the first list of what is watched from then on. */
  list: { firstMs: 1_000, longestMs: 60_000 },
  listRefused: { firstMs: 1_000, longestMs: 300_000 },
  /** Extra rounds that tasks request repeatedly, such as a repair that has no effect; at most the time between regular rounds. */
  reconcile: { firstMs: 1_000, longestMs: Number.POSITIVE_INFINITY },
  /** Reads of a pod whose network keeps changing. After `quietMs` without changes the next read comes without delay. */
  follow: { firstMs: 250, longestMs: 30_000, quietMs: 10_000 },
  /** Settings of a VF that its PF lost and now rejects: at most one attempt per round. */
  drift: { firstMs: 1_000, longestMs: 300_000 },
  /** Temporary refusals of the kernel, such as a NIC that resets a VF, or short memory. After `untilMs` they are errors. */
  busy: { firstMs: 20, longestMs: 320, untilMs: 1_000 },
} as const;

/** Polling intervals for what no event reports. */
export const periods = {
  /** Used only while another process has the lock, as during a rolling update. */
  fileLock: 10,
  /** The same, where the kernel reports when that process closes the file. */
  fileLockReported: 250,
  /** Finds changes that the watch may have missed. */
  sliceRecheck: 300_000,
  /** Finds changes that the watch may have missed, or made while no watch is open. */
  deviceClasses: 60_000,
  /** Until a deleted NetworkDevicePolicy counts: API servers take seconds to show that its definition is being deleted, too. */
  policyDeletion: 10_000,
  /** Containers wait at the gate meanwhile. */
  waitingSandboxes: 1_000,
  /** Finds deleted network namespaces, whose VFs are back on the host. */
  namespaceEnds: 1_000,
  /** Finds pods that are deleted while their containers wait. */
  deletedPods: 2_000,
} as const;
