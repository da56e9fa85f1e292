/**
 * Phase of a sandbox.
 *
 * `pending`: nothing was done yet. The pod may have no claim with VFs, and then it stays so.
 *
 * `attaching`: VFs are being attached, or metadata is being written; what has failed is retried after a pause. A sandbox comes back to
 * it when a VF has left the pod, or a new claim of the pod fails.
 *
 * `ready`: all claims of the pod have their VFs attached and their metadata written. They are read again after changes.
 *
 * `detaching`: VFs are being detached, because the sandbox has ended or may have; what has failed is retried after a pause.
 *
 * `gone`: no VF is in it. It is detached once more if its end becomes known while the last VF was being detached on suspicion.
 */
export type Phase = 'pending' | 'attaching' | 'ready' | 'detaching' | 'gone';

/** The phases that may follow each phase. */
export const transitions: Record<Phase, readonly Phase[]> = {
  pending: ['attaching', 'detaching'],
  attaching: ['ready', 'detaching'],
  ready: ['attaching', 'detaching'],
  detaching: ['gone'],
  gone: ['detaching'],
};

/** The phase that a sandbox is in. */
export class SandboxPhase {
  #current: Phase = 'pending';

  get current(): Phase {
    return this.#current;
  }

  /** Does nothing if the phase stays. @throws Error for a transition that the table does not have: a fault of the driver */
  enter(next: Phase): void {
    if (next !== this.#current && !transitions[this.#current].includes(next)) {
      throw new Error(`a sandbox cannot become ${next} while it is ${this.#current}`);
    }
    this.#current = next;
  }
}

/**
 * The wanted state of a sandbox, each more final than the one before. `away`: its VFs are detached and its containers wait,
 * since it may turn out to be alive. `gone`: it has ended, and so do containers that wait in it.
 */
export type Wanted = 'ready' | 'away' | 'gone';

/** Of two wanted states the one with the higher number prevails. */
export const finality: Record<Wanted, number> = { ready: 0, away: 1, gone: 2 };
