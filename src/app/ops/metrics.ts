import { readdirSync } from 'node:fs';
import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { NodeFacts } from '../../driver/ports.ts';

export interface MetricsOptions {
  driver: string;
  version: string;
  metadataEnabled: boolean;
}

/** Seconds: a hook takes milliseconds, the kubelet gives up after 45 s. */
const callBuckets = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 45];
/** Seconds: the KEP's objective is a 99th percentile below 10 ms. */
const writeBuckets = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1];

/**
 * The driver's metrics, in the exposition format of Prometheus. Names that begin with `dra_metadata_` are those of
 * KEP-5304, the others are ours. None of ours has a label whose values an outsider chooses, so that their number is
 * bounded.
 */
export class Metrics {
  readonly #registry = new Registry();
  readonly #metadataWrites: Counter;
  readonly #metadataWriteErrors: Counter;
  readonly #metadataUpdateErrors: Counter;
  readonly #metadataWriteSeconds: Histogram;
  readonly #callSeconds: Histogram<'operation' | 'result'>;
  readonly #claimErrors: Counter<'operation' | 'code'>;
  readonly #hookSeconds: Histogram<'hook' | 'result'>;
  readonly #hookErrors: Counter<'hook' | 'code'>;
  readonly #connected: Gauge<'peer'>;
  readonly #connects: Counter<'peer'>;
  readonly #stalls: Counter;
  readonly #longestStallSeconds: Gauge;

  constructor(options: MetricsOptions) {
    const registers = [this.#registry];
    this.#registry.setDefaultLabels({ driver_name: options.driver });
    const counter = <L extends string>(name: string, help: string, labelNames: L[] = []) =>
      new Counter({ name, help, labelNames, registers });
    const gauge = <L extends string>(name: string, help: string, labelNames: L[] = []) =>
      new Gauge({ name, help, labelNames, registers });
    const histogram = <L extends string>(name: string, help: string, buckets: number[], labelNames: L[] = []) =>
      new Histogram({ name, help, buckets, labelNames, registers });

    const build = gauge('netdra_build_info', 'Version of the driver and of Node.js; always 1.', ['version', 'node']);
    build.set({ version: options.version, node: process.versions.node }, 1);
    const enabled = gauge('dra_metadata_feature_enabled', 'Whether device metadata is written: 0 or 1.');
    enabled.set(Number(options.metadataEnabled));
    this.#metadataWrites = counter('dra_metadata_writes_total', 'Metadata writes, including updates.');
    this.#metadataWriteErrors = counter('dra_metadata_write_errors_total', 'Metadata that could not be written.');
    const updateErrors = 'Updates of metadata after its claim was prepared that failed.';
    this.#metadataUpdateErrors = counter('dra_metadata_update_errors_total', updateErrors);
    const writeTime = 'Time to write the metadata of one request.';
    this.#metadataWriteSeconds = histogram('dra_metadata_write_duration_seconds', writeTime, writeBuckets);
    const callTime = "Duration of prepare and unprepare calls, without the framework's part.";
    this.#callSeconds = histogram('netdra_claim_duration_seconds', callTime, callBuckets, ['operation', 'result']);
    this.#claimErrors = counter('netdra_claim_errors_total', 'Claims that failed, by reason.', ['operation', 'code']);
    const hookTime = 'Duration of NRI hooks, for pods with and without claims.';
    this.#hookSeconds = histogram('netdra_hook_duration_seconds', hookTime, callBuckets, ['hook', 'result']);
    this.#hookErrors = counter('netdra_hook_errors_total', 'Events that were refused, by reason.', ['hook', 'code']);
    this.#connected = gauge('netdra_connected', 'Whether the driver is registered with the peer: 0 or 1.', ['peer']);
    const registrations = 'Registrations with the kubelet, connections to the runtime.';
    this.#connects = counter('netdra_connects_total', registrations, ['peer']);
    for (const peer of ['kubelet', 'nri'] as const) {
      this.#connected.set({ peer }, 0);
      this.#connects.inc({ peer }, 0);
    }
    const stalls = 'Seconds in which the event loop stalled beyond the threshold.';
    this.#stalls = counter('netdra_event_loop_stalls_total', stalls);
    this.#longestStallSeconds = gauge('netdra_event_loop_stall_max_seconds', 'The longest stall since the start.');
    this.#addProcessMetrics();
  }

  /** The page that Prometheus scrapes, and its content type. */
  async render(): Promise<{ contentType: string; text: string }> {
    return { contentType: this.#registry.contentType, text: await this.#registry.metrics() };
  }

  /** Adds the gauges that are read at each scrape. To be called once, when their sources exist. */
  readFrom(sources: NodeFacts): void {
    this.#read('netdra_devices_offered', 'Devices that are offered to the scheduler.', sources.devicesOffered);
    this.#read('netdra_devices_attached', "Devices that are in a pod's sandbox.", sources.devicesAttached);
    this.#read('dra_metadata_files_active', 'Requests that have a metadata file.', sources.metadataFiles);
    new Gauge({
      name: 'netdra_claims',
      help: 'Claims by state: prepared, or preparing and unpreparing, which stay only when something fails.',
      labelNames: ['state'],
      registers: [this.#registry],
      collect() {
        this.reset();
        for (const state of ['preparing', 'configured', 'prepared', 'unpreparing']) this.set({ state }, 0);
        for (const [state, count] of Object.entries(sources.claimsByState())) this.set({ state }, count);
      },
    });
  }

  metadataWritten(seconds: number): void {
    this.#metadataWrites.inc();
    this.#metadataWriteSeconds.observe(seconds);
  }

  metadataFailed(step: 'prepare' | 'update'): void {
    this.#metadataWriteErrors.inc();
    if (step === 'update') this.#metadataUpdateErrors.inc();
  }

  claimsDone(operation: 'prepare' | 'unprepare', seconds: number, codes: string[]): void {
    this.#callSeconds.observe({ operation, result: codes.length === 0 ? 'ok' : 'error' }, seconds);
    for (const code of codes) this.#claimErrors.inc({ operation, code });
  }

  /** @param code of the refusal; absent: the hook was served */
  hookDone(hook: string, seconds: number, code?: string): void {
    this.#hookSeconds.observe({ hook, result: code === undefined ? 'ok' : 'error' }, seconds);
    if (code !== undefined) this.#hookErrors.inc({ hook, code });
  }

  connected(peer: 'kubelet' | 'nri', isConnected: boolean): void {
    this.#connected.set({ peer }, Number(isConnected));
    if (isConnected) this.#connects.inc({ peer });
  }

  stalled(seconds: number, longestSeconds: number): void {
    if (seconds > 0) this.#stalls.inc();
    this.#longestStallSeconds.set(longestSeconds);
  }

  /** Process metrics under the names that every Prometheus client uses, as far as dashboards need them. */
  #addProcessMetrics(): void {
    this.#read('process_resident_memory_bytes', 'Resident memory in bytes.', () => process.memoryUsage.rss());
    this.#read('nodejs_heap_used_bytes', 'Heap in use in bytes.', () => process.memoryUsage().heapUsed);
    this.#read('process_open_fds', 'Open file descriptors.', () => readdirSync('/proc/self/fd').length);
    const startedAt = Math.round(performance.timeOrigin / 1000);
    this.#read('process_start_time_seconds', 'Start of the process, Unix time in seconds.', () => startedAt);
    new Counter({
      name: 'process_cpu_seconds_total',
      help: 'User and system CPU time spent, in seconds.',
      registers: [this.#registry],
      collect() {
        const { user, system } = process.cpuUsage();
        this.reset();
        this.inc((user + system) / 1e6);
      },
    });
  }

  /** Adds a gauge that is read at each scrape. */
  #read(name: string, help: string, read: () => number | Promise<number>): void {
    new Gauge({
      name,
      help,
      registers: [this.#registry],
      async collect() {
        this.set(await read());
      },
    });
  }
}
