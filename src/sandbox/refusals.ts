import type { HookFailure } from './hook-failure.ts';

/** A pod whose sandboxes were refused so often keeps the next one, and its containers wait. */
const maxRefusals = 3;
/** More pods are not remembered: the longest known one is forgotten. */
const maxPods = 1_000;

/**
 * Backs pods off that are refused again and again. Each refusal costs an address, and on some versions of containerd a
 * record for ever (see `resolveHookFailure`); a sandbox that is kept can be served later just as well.
 */
export class Refusals {
  readonly #counts = new Map<string, number>();

  /** What to answer for a pod that cannot be served now, and notes it. */
  answer(podUid: string, wanted: HookFailure): HookFailure {
    const count = (this.#counts.get(podUid) ?? 0) + 1;
    this.#counts.delete(podUid);
    if (wanted === 'gate' || count > maxRefusals) return 'gate';
    this.#counts.set(podUid, count);
    if (this.#counts.size > maxPods) this.forget(this.#counts.keys().next().value ?? '');
    return 'reject';
  }

  forget(podUid: string): void {
    this.#counts.delete(podUid);
  }
}
