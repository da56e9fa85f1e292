import { setTimeout as sleep } from 'node:timers/promises';
import { parseScrape } from '../../test/doubles/prometheus.ts';
import { keepRecording } from './recording.ts';

/** The rule's `for` counts from the first sample, and a sample later it has passed. */
const marginSteps = 2;

/** Records a driver's metrics page second by second, where there is no Prometheus. */
export class PageRecorder implements AsyncDisposable {
  readonly #url: string;
  readonly #labels: string;
  readonly #pages: ReadonlyMap<string, number>[] = [];
  readonly #firesAt = new Map<string, number>();
  readonly #ending = new AbortController();
  readonly #loop: Promise<void>;

  /** @param node value of the label that Prometheus adds to the series of a target */
  constructor(url: string, node: string) {
    this.#url = url;
    this.#labels = `job="netdra", instance="${node}:9797", node="${node}"`;
    this.#loop = this.#record();
  }

  /** Whether the last samples of a series are above 0 for as long as a rule with this `for` takes to fire. */
  holds(series: string, forSteps: number): boolean {
    const last = this.#pages.slice(-forSteps - marginSteps);
    return last.length === forSteps + marginSteps && last.every((page) => (page.get(series) ?? 0) > 0);
  }

  isZero(series: string): boolean {
    return this.#pages.at(-1)?.get(series) === 0;
  }

  /** The alert has to fire on the samples so far. */
  fires(alert: string): void {
    this.#firesAt.set(alert, this.#pages.length - 1);
  }

  /** Stores the recording of the only series that an alert reads; the alert has ended. */
  keep(alert: string, series: string, dir: string | undefined): void {
    const firesAt = this.#firesAt.get(alert);
    if (firesAt === undefined) throw new Error(`${alert} has not fired`);
    const values = this.#pages.map((page) => page.get(series));
    const name = series.replace('}', `, ${this.#labels}}`);
    const nodes = [/ node="(.*)"/.exec(this.#labels)?.[1] ?? ''];
    keepRecording({ alert, series: new Map([[name, values]]), firesAt, endsAt: values.length - 1, nodes }, dir);
  }

  async #record(): Promise<void> {
    const { signal } = this.#ending;
    while (!signal.aborted) {
      const pause = sleep(1_000, undefined, { signal }).catch(() => undefined);
      // While the driver does not run, there is a step without samples.
      const text = await fetch(this.#url, { signal }).then(
        (response) => response.text(),
        () => '',
      );
      this.#pages.push(parseScrape(text));
      await pause;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#ending.abort();
    await this.#loop;
  }
}
