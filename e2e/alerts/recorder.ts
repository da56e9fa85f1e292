import { expect } from 'vitest';
import type { Prometheus } from '../release/prometheus-server.ts';
import { keepRecording } from './recording.ts';
import { type AlertRules, holdSeconds, selectorsOf } from './rules.ts';

/** The recorded steps are whole seconds, so that rules on them fire some later than Prometheus did. */
const marginSeconds = 4;
const patient = { timeout: 300_000, interval: 500 };

interface RecorderOptions {
  prometheus: Prometheus;
  rules: AlertRules;
  /** The node of alerts that name one. */
  node: string;
}

/** Records the series that alerts read, as Prometheus has scraped them, while the alerts begin and end. */
export class AlertRecorder {
  readonly #options: RecorderOptions;
  readonly #createdAt = Math.floor(Date.now() / 1_000);
  readonly #firedAt = new Map<string, number>();
  #beganAt = this.#createdAt;

  constructor(options: RecorderOptions) {
    this.#options = options;
  }

  /** What follows belongs to the recordings of the alerts that fire from now on. */
  begin(): void {
    this.#firedAt.clear();
    this.#beganAt = Math.floor(Date.now() / 1_000);
  }

  /** An alert fires. Waits until there are samples on which the recorded one fires, too. */
  async fired(alert: string): Promise<void> {
    if (!this.#firedAt.has(alert)) this.#firedAt.set(alert, await this.#step());
  }

  /** Alerts no longer fire. Waits in the same way, and stores what was recorded. */
  async ended(alerts: readonly string[]): Promise<void> {
    const { rules, node } = this.#options;
    const endsAt = await this.#step();
    for (const alert of alerts) await this.#keep(alert, selectorsOf(rules, alert), endsAt, node);
  }

  /** The alert about all nodes, which reads other alerts. @param cause the one that made it fire */
  async endedOfAll(alert: string, cause: string): Promise<void> {
    const { rules } = this.#options;
    const selectors = [alert, cause].flatMap((each) => selectorsOf(rules, each));
    await this.#keep(alert, selectors, await this.#step());
  }

  /** The second that is a little later than now, when its samples are there. */
  async #step(): Promise<number> {
    const at = Math.ceil(Date.now() / 1_000) + marginSeconds;
    const scraped = async () => {
      const [sample] = await this.#options.prometheus.query('max(timestamp(up))');
      return Number(sample?.value[1] ?? 0);
    };
    await expect.poll(scraped, patient).toBeGreaterThan(at);
    return at;
  }

  async #keep(alert: string, selectors: readonly string[], endsAt: number, node?: string): Promise<void> {
    const { prometheus, rules } = this.#options;
    const firedAt = this.#firedAt.get(alert);
    if (firedAt === undefined) throw new Error(`${alert} has not fired`);
    // A cause can be older than the case.
    const pendingSince = firedAt - holdSeconds(rules, alert) - 2 * marginSeconds;
    const beganAt = Math.max(Math.min(this.#beganAt, pendingSince), this.#createdAt);
    const steps = endsAt - beganAt;
    const series = new Map<string, (number | undefined)[]>();
    for (const selector of selectors) {
      for (const { metric, values } of await prometheus.range(selector, beganAt, endsAt)) {
        if (node !== undefined && metric.node !== node) continue;
        const { __name__: name = '', ...labels } = metric;
        // promtool's clock begins at 0.
        const origin = name.endsWith('_timestamp_seconds') ? beganAt : 0;
        const points = new Map(values.map(([at, value]) => [at - beganAt, Number(value) - origin]));
        const text = Object.entries(labels).map(([label, value]) => `${label}=${JSON.stringify(value)}`);
        const samples = Array.from({ length: steps + 1 }, (_, step) => points.get(step));
        series.set(`${name}{${text.join(', ')}}`, samples);
      }
    }
    const nodes = node === undefined ? [] : [node];
    keepRecording({ alert, series, firesAt: firedAt - beganAt, endsAt: steps, nodes });
  }
}
