/** What the driver does, as it is counted where its code calls Node.js, SQLite and the C library. */
export const counted = {
  netlinkRequests: 'netlink requests',
  netlinkBytes: 'bytes of netlink answers',
  threadTrips: 'trips to a thread',
  libraryCalls: 'other calls of the C library',
  filesOpened: 'files and directories opened',
  filesRead: 'reads of files',
  filesWritten: 'writes of files',
  filesRenamed: 'files renamed',
  filesRemoved: 'files and directories removed',
  directoriesMade: 'directories made',
  filesLookedAt: 'looks at files and directories',
  transactions: 'transactions of the store',
  statements: 'statements of the store',
  apiRequests: 'requests to the API server',
  socketBytes: 'bytes from runtime and API server',
} as const;

export type Counter = keyof typeof counted;
export type Counts = Record<Counter, number>;

/** All of them, from zero. */
export function noCounts(): Counts {
  return Object.fromEntries(Object.keys(counted).map((name) => [name, 0])) as Counts;
}

/** What a process says when it is asked. */
export interface Reading {
  counts: Counts;
  /** Of all threads since the process started, ms. */
  cpuMs: number;
}
