import { parseScrape } from '../../../test/doubles/prometheus.ts';

/** Totals of the requests for one kind of resource. */
export interface Cost {
  reads: number;
  writes: number;
  /** Request bodies. */
  receivedBytes: number;
  /** Response bodies. */
  sentBytes: number;
  /** Events to all watchers. */
  watchedBytes: number;
  /** Responses with status 400 and above. */
  refused: number;
}

/**
 * An API server's counts of its own requests at one moment: the same for any client.
 * Source: Kubernetes metrics reference, `apiserver_*`.
 */
export class ApiMetrics {
  readonly #series: Map<string, number>;

  /** @param text of `/metrics` */
  constructor(text: string) {
    this.#series = parseScrape(text);
  }

  /** Cost of a resource such as `resourceslices`, minus the counts in `before`. */
  costOf(resource: string, before?: ApiMetrics): Cost {
    const earlier = before === undefined ? new Map<string, number>() : before.#series;
    const sum = (name: string, isMeant: (labels: string) => boolean) => {
      let total = 0;
      for (const [series, value] of this.#series) {
        if (!series.startsWith(`${name}{`) || !series.includes(`"${resource}"`) || !isMeant(series)) continue;
        total += value - (earlier.get(series) ?? 0);
      }
      return total;
    };
    const isRead = (labels: string) => /verb="(GET|LIST|WATCH)"/.test(labels);
    const isRefused = (labels: string) => /code="[45]/.test(labels);
    return {
      reads: sum('apiserver_request_total', isRead),
      writes: sum('apiserver_request_total', (labels) => !isRead(labels) && !isRefused(labels)),
      receivedBytes: sum('apiserver_request_body_size_bytes_sum', () => true),
      sentBytes: sum('apiserver_response_sizes_sum', () => true),
      watchedBytes: sum('apiserver_watch_events_sizes_sum', () => true),
      refused: sum('apiserver_request_total', isRefused),
    };
  }
}
