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
  readonly #own: ReturnType<typeof createOwnMetrics>;

  constructor({ driver, version, metadataEnabled }: MetricsOptions) {
    const registers = [this.#registry];
    this.#registry.setDefaultLabels({ driver_name: driver });
    const labelNames = ['version', 'node'];
    const buildHelp = 'Version of the driver and of Node.js; always 1.';
    const build = new Gauge({ name: 'netdra_build_info', help: buildHelp, labelNames, registers });
    build.set({ version, node: process.versions.node }, 1);
    const help = 'Whether device metadata is written: 0 or 1.';
    new Gauge({ name: 'dra_metadata_feature_enabled', help, registers }).set(Number(metadataEnabled));
    this.#own = createOwnMetrics(registers);
    for (const peer of ['kubelet', 'nri'] as const) {
      this.#own.connected.set({ peer }, 0);
      this.#own.connects.inc({ peer }, 0);
    }
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
        for (const state of ['preparing', 'prepared', 'unpreparing']) this.set({ state }, 0);
        for (const [state, count] of Object.entries(sources.claimsByState())) this.set({ state }, count);
      },
    });
  }

  metadataWritten(seconds: number): void {
    this.#own.metadataWrites.inc();
    this.#own.metadataWriteSeconds.observe(seconds);
  }

  metadataFailed(step: 'prepare' | 'update'): void {
    this.#own.metadataWriteErrors.inc();
    if (step === 'update') this.#own.metadataUpdateErrors.inc();
  }

  claimsDone(operation: 'prepare' | 'unprepare', seconds: number, codes: string[]): void {
    this.#own.callSeconds.observe({ operation, result: codes.length === 0 ? 'ok' : 'error' }, seconds);
    for (const code of codes) this.#own.claimErrors.inc({ operation, code });
  }

  /** @param code of the refusal; absent: the hook was served */
  hookDone(hook: string, seconds: number, code?: string): void {
    this.#own.hookSeconds.observe({ hook, result: code === undefined ? 'ok' : 'error' }, seconds);
    if (code !== undefined) this.#own.hookErrors.inc({ hook, code });
  }

  connected(peer: 'kubelet' | 'nri', isConnected: boolean): void {
    this.#own.connected.set({ peer }, Number(isConnected));
    if (isConnected) this.#own.connects.inc({ peer });
  }

  stalled(seconds: number, longestSeconds: number): void {
    if (seconds > 0) this.#own.stalls.inc();
    this.#own.longestStallSeconds.set(longestSeconds);
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

/** The metrics that calls of {@link Metrics} change. */
function createOwnMetrics(registers: Registry[]) {
  const counter = <L extends string>(name: string, help: string, labelNames: L[] = []) =>
    new Counter({ name, help, labelNames, registers });
  const gauge = <L extends string>(name: string, help: string, labelNames: L[] = []) =>
    new Gauge({ name, help, labelNames, registers });
  const histogram = <L extends string>(name: string, help: string, buckets: number[], labelNames: L[] = []) =>
    new Histogram({ name, help, buckets, labelNames, registers });
  const updateErrors = 'Updates of metadata after its claim was prepared that failed.';
  const writeTime = 'Time to write the metadata of one request.';
  const callTime = "Duration of prepare and unprepare calls, without the framework's part.";
  const hookTime = 'Duration of NRI hooks, for pods with and without claims.';
  const registrations = 'Registrations with the kubelet, connections to the runtime.';
  const stalls = 'Seconds in which the event loop stalled beyond the threshold.';
  return {
    metadataWrites: counter('dra_metadata_writes_total', 'Metadata writes, including updates.'),
    metadataWriteErrors: counter('dra_metadata_write_errors_total', 'Metadata that could not be written.'),
    metadataUpdateErrors: counter('dra_metadata_update_errors_total', updateErrors),
    metadataWriteSeconds: histogram('dra_metadata_write_duration_seconds', writeTime, writeBuckets),
    callSeconds: histogram('netdra_claim_duration_seconds', callTime, callBuckets, ['operation', 'result']),
    claimErrors: counter('netdra_claim_errors_total', 'Claims that failed, by reason.', ['operation', 'code']),
    hookSeconds: histogram('netdra_hook_duration_seconds', hookTime, callBuckets, ['hook', 'result']),
    hookErrors: counter('netdra_hook_errors_total', 'Events that were refused, by reason.', ['hook', 'code']),
    connected: gauge('netdra_connected', 'Whether the driver is registered with the peer: 0 or 1.', ['peer']),
    connects: counter('netdra_connects_total', registrations, ['peer']),
    stalls: counter('netdra_event_loop_stalls_total', stalls),
    longestStallSeconds: gauge('netdra_event_loop_stall_max_seconds', 'The longest stall since the start.'),
  };
}
