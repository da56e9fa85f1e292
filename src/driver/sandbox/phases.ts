/**
 * Phase of a sandbox.
 *
 * `pending`: nothing was done yet. A pod without VFs stays in this phase.
 *
 * `attaching`: VFs are being attached, or metadata is being written; failures are retried after a pause. A sandbox returns to
 * this phase when a VF has left the pod, or a new claim of the pod fails.
 *
 * `ready`: all claims of the pod have their VFs attached and their metadata written. They are read again after changes.
 *
 * `detaching`: VFs are being detached, because the sandbox has ended or may have; failures are retried after a pause. The
 * phase begins when the end becomes known: a running attempt to attach is cut short. A suspected end can become a certain
 * one.
 *
 * `gone`: no VF is in the sandbox.
 */
export type Phase = SandboxState['phase'];

/** Phase of a sandbox; in the last two phases, also the end of the sandbox. */
export type SandboxState = { phase: 'pending' | 'attaching' | 'ready' } | { phase: 'detaching' | 'gone'; end: End };

/**
 * End of a sandbox. `away`: its VFs are detached and its containers wait, since it may turn out to be alive. `gone`: it has
 * ended, and its containers end.
 */
export type End = 'away' | 'gone';

/** Wanted state of a sandbox. The states are in order: each is more final than the one before. */
export type Wanted = 'ready' | End;

/** Finality of wanted states: a state prevails over states with a lower number. */
const finality: Record<Wanted, number> = { ready: 0, away: 1, gone: 2 };

/** Phases that may follow each phase. */
export const transitions: Record<Phase, readonly Phase[]> = {
  pending: ['attaching', 'detaching'],
  attaching: ['ready', 'detaching'],
  ready: ['attaching', 'detaching'],
  detaching: ['gone'],
  gone: [],
};

/** Current phase of a sandbox. */
export class SandboxPhase {
  #state: SandboxState = { phase: 'pending' };

  get current(): Phase {
    return this.#state.phase;
  }

  get wanted(): Wanted {
    return 'end' in this.#state ? this.#state.end : 'ready';
  }

  /** Returns whether a wanted state is more final than the present one, and the sandbox can still reach it. */
  yieldsTo(desired: Wanted): desired is End {
    return this.current !== 'gone' && finality[desired] > finality[this.wanted];
  }

  /** Enters a state. @throws Error for a transition that the table does not allow, which is a bug of the driver */
  enter(next: SandboxState): void {
    if (next.phase !== this.current && !transitions[this.current].includes(next.phase)) {
      throw new Error(`a sandbox cannot become ${next.phase} while it is ${this.current}`);
    }
    this.#state = next;
  }
}
