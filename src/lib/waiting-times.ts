/** How long components wait before they try again, and how often they look. Milliseconds. */

/**
 * After more refusals in a row than this, one counts as permanent. An API server that starts refuses some requests until it has read
 * all roles.
 */
export const passingRefusals = 5;

/** Pauses after failures. Each failure in a row doubles the pause. */
export const pauses = {
  /** The pod waits for it. What succeeds and fails again within `quietMs`, as a VF that a process keeps moving, goes on growing. */
  sandbox: { firstMs: 500, longestMs: 5_000, quietMs: 10_000 },
  /** The scheduler needs the slices soon, and an API server that restarts takes some seconds. */
  slices: { firstMs: 1_000, longestMs: 30_000 },
  /** A conflict means that another writer was quicker: trying again at once nearly always helps. */
  sliceConflict: { firstMs: 50, longestMs: 30_000 },
  /** Changes by others are reverted: two rival writers must not keep the API server busy. */
  sliceRepair: { firstMs: 1_000, longestMs: 60_000 },
  /** A permanent refusal ends only with a change of the server's configuration. */
  refused: { firstMs: 300_000, longestMs: 300_000 },
  claimStatus: { firstMs: 500, longestMs: 30_000 },
  /** A permission may be added at any time, and every claim of the node is retried. */
  claimStatusForbidden: { firstMs: 500, longestMs: 300_000 },
  /** Races with other writers of one claim; a random part of it is taken. */
  claimStatusConflict: { firstMs: 20, longestMs: 320 },
  /** An event is news: it is given up after the sixth failure, half a minute later. */
  event: { firstMs: 1_000, longestMs: 30_000 },
  /** What a node reports of itself: no pod waits for it. After `quietMs` the pauses start anew. */
  nodeView: { firstMs: 2_000, longestMs: 120_000, quietMs: 120_000 },
  /** Until the watch is there again, the list is read after each pause. */
  watch: { firstMs: 1_000, longestMs: 60_000 },
  /** Lists that are watched from then on. */
  list: { firstMs: 1_000, longestMs: 60_000 },
  listRefused: { firstMs: 1_000, longestMs: 300_000 },
  /** Rounds that tasks request again and again: a repair that has no effect. At most as long as between all rounds. */
  reconcile: { firstMs: 1_000, longestMs: Number.POSITIVE_INFINITY },
  /** Reads of a pod whose network changes all the time. After `quietMs` without changes, it is read without delay again. */
  follow: { firstMs: 250, longestMs: 30_000, quietMs: 10_000 },
  /** Pauses for settings of a VF that its PF has lost and rejects: at most one attempt for each round. */
  drift: { firstMs: 1_000, longestMs: 300_000 },
  /** Refusals of the kernel that pass by themselves: a card resets a VF, memory is short. After `untilMs` they are errors. */
  busy: { firstMs: 20, longestMs: 320, untilMs: 1_000 },
} as const;

/** How often components look at what no event reports. */
export const periods = {
  /** Only while another process has the lock, which happens during a rolling update. */
  fileLock: 10,
  /** For changes that the watch may have missed. */
  sliceRecheck: 300_000,
  /** For changes that the watch may have missed, or if no watch is open. */
  deviceClasses: 60_000,
  /** A container in whose pod something is announced is waiting. */
  waitingSandboxes: 1_000,
  /** A namespace that is gone returns its VFs to the host. */
  namespaceEnds: 1_000,
  /** Pods that are being deleted while their containers wait. */
  deletedPods: 2_000,
} as const;
