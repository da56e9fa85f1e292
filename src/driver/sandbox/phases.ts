/**
 * Phase of a sandbox.
 * `pending`: nothing was done yet. `attaching`: VFs are being attached, also those that have left the pod; retried after a
 * failure. `ready`: VFs are attached and metadata is written. `detaching`: VFs are being detached; retried after a failure.
 * `gone`: no VF is in it.
 */
export type Phase = 'pending' | 'attaching' | 'ready' | 'detaching' | 'gone';

/**
 * The wanted state of a sandbox, each more final than the one before. `away`: its VFs are detached and its containers wait,
 * since it may turn out to be alive. `gone`: it has ended, and so do containers that wait in it.
 */
export type Wanted = 'ready' | 'away' | 'gone';

/** Of two wanted states the one with the higher number prevails. */
export const finality: Record<Wanted, number> = { ready: 0, away: 1, gone: 2 };
