/** Conditions of readiness, with the reason reported until each is met. */
const unmet = {
  kubelet: 'not registered yet; does the kubelet watch the registration directory?',
  nri: 'not connected yet; is NRI enabled in the runtime?',
  slices: 'ResourceSlices not published yet',
};
type ReadinessCondition = keyof typeof unmet;

export type ConditionState = { ok: true } | { ok: false; reason: string };

/** The driver's readiness: registered with the kubelet, connected to the runtime, slices published. */
export class Readiness {
  readonly #states = new Map<ReadinessCondition, ConditionState>(
    Object.entries(unmet).map(([condition, reason]) => [condition as ReadinessCondition, { ok: false, reason }]),
  );

  set(condition: ReadinessCondition, state: ConditionState): void {
    this.#states.set(condition, state);
  }

  get ready(): boolean {
    return [...this.#states.values()].every(({ ok }) => ok);
  }

  /** One line for each condition: `[+]nri ok`, `[-]nri failed: reason`, like the API server's own health pages. */
  report(): string {
    const lines = [...this.#states].map(([name, state]) =>
      state.ok ? `[+]${name} ok` : `[-]${name} failed: ${state.reason}`,
    );
    return `${lines.join('\n')}\n`;
  }
}
