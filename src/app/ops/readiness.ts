/** Conditions of readiness, with the reasons that are reported while a condition is not met. */
const unmet = {
  kubelet: 'not registered yet; does the kubelet watch the registration directory?',
  nri: 'not connected yet; is NRI enabled in the runtime?',
  slices: 'ResourceSlices not published yet',
};
type ReadinessCondition = keyof typeof unmet;

export type ConditionState = { ok: true } | { ok: false; reason: string };

/** Answer to a probe of readiness. */
export interface ProbeAnswer {
  ready: boolean;
  /** Text for people, one line for each condition. */
  report: string;
}

/** The driver's readiness: registered with the kubelet, connected to the runtime, slices published. */
export class Readiness {
  readonly #states = new Map<ReadinessCondition, ConditionState>(
    Object.entries(unmet).map(([condition, reason]) => [condition as ReadinessCondition, { ok: false, reason }]),
  );

  set(condition: ReadinessCondition, state: ConditionState): void {
    this.#states.set(condition, state);
  }

  /**
   * Returns the readiness, and a report with one line for each condition, such as `[+]nri ok` or `[-]nri failed: reason`, as in
   * the API server's own health pages.
   */
  answer(): ProbeAnswer {
    const lines = [...this.#states].map(([name, state]) =>
      state.ok ? `[+]${name} ok` : `[-]${name} failed: ${state.reason}`,
    );
    return { ready: [...this.#states.values()].every(({ ok }) => ok), report: `${lines.join('\n')}\n` };
  }
}
