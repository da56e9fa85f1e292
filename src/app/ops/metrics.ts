import { readdirSync } from 'node:fs';
import { Counter, Gauge, Histogram, type OpenMetricsContentType, Registry } from 'prom-client';
import type { NodeFacts } from '../../driver/composition/ports.ts';
import type { DeviceCounts } from '../../driver/devices/device-counts.ts';
import { driftResults, driftSettings } from '../../driver/drift/index.ts';
import { shared } from '../../lib/shared.ts';
import type { LinkTraffic } from '../../node/netlink/index.ts';

/** Media type of OpenMetrics. */
export const openMetricsType = 'application/openmetrics-text';

export interface MetricsOptions {
  driver: string;
  version: string;
  metadataEnabled: boolean;
}

/** Numbers by label value. */
type Counts = Record<string, number>;

/** Buckets for calls, in seconds: a hook takes milliseconds, the kubelet gives up after 45 s. */
const callBuckets = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 45];
/** Buckets for attaching devices, in seconds: containers wait up to 100 s for their devices, then fail and are restarted. */
const attachBuckets = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 300];
/** Buckets for writes of metadata, in seconds: the KEP's objective is a 99th percentile below 10 ms. */
const writeBuckets = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1];

/** Metrics of a VF's traffic, by counter. A packet that the VF received went to its pod. */
const trafficMetrics: Record<keyof LinkTraffic, [name: string, help: string]> = {
  rxBytes: ['netdra_vf_receive_bytes_total', 'Bytes received by a VF in a pod.'],
  txBytes: ['netdra_vf_transmit_bytes_total', 'Bytes sent by a VF in a pod.'],
  rxPackets: ['netdra_vf_receive_packets_total', 'Packets received by a VF in a pod.'],
  txPackets: ['netdra_vf_transmit_packets_total', 'Packets sent by a VF in a pod.'],
  rxDropped: ['netdra_vf_receive_dropped_total', 'Dropped packets to a VF in a pod.'],
  txDropped: ['netdra_vf_transmit_dropped_total', 'Dropped packets from a VF in a pod.'],
  rxErrors: ['netdra_vf_receive_errors_total', 'Receive errors of the interface of a VF in a pod.'],
  txErrors: ['netdra_vf_transmit_errors_total', 'Transmit errors of the interface of a VF in a pod.'],
};

/**
 * The driver's metrics, in the exposition format of Prometheus. Names that begin with `dra_metadata_` are those of KEP-5304;
 * all others are netdra's. No label has values that an outsider chooses, which bounds the number of series. Only the traffic
 * metrics of VFs name pods, whose number is limited.
 */
export class Metrics {
  /** Metrics that the driver's own work changes. */
  readonly own: ReturnType<typeof createOwnMetrics>;
  readonly #registry = new Registry();
  /** Labels of all metrics. */
  readonly #labels: object;
  /** Readings of the current scrape. Each resolves to `undefined`, or to the metric's name if the reading failed. */
  readonly #readings: Promise<string | undefined>[] = [];

  constructor({ driver, version, metadataEnabled }: MetricsOptions) {
    const registers = [this.#registry];
    this.#labels = { driver_name: driver };
    this.#registry.setDefaultLabels(this.#labels);
    // Not named `node`: the ServiceMonitor sets the label `node` to the target's node.
    const labelNames = ['version', 'nodejs_version'];
    const buildHelp = 'Version of the driver and of Node.js; always 1.';
    const build = new Gauge({ name: 'netdra_build_info', help: buildHelp, labelNames, registers });
    build.set({ version, nodejs_version: process.versions.node }, 1);
    const help = 'Whether device metadata is written: 0 or 1.';
    new Gauge({ name: 'dra_metadata_feature_enabled', help, registers }).set(Number(metadataEnabled));
    this.own = createOwnMetrics(registers);
    for (const peer of ['kubelet', 'nri'] as const) {
      this.own.connected.set({ peer }, 0);
      this.own.connects.inc({ peer }, 0);
    }
    // Without TLS the series must be absent.
    this.own.certificateExpiry.remove();
    this.own.certificateLifetime.remove();
    // Created with 0, so that the first event counts as an increase.
    for (const result of ['aligned', 'misaligned', 'unknown', 'refused']) this.own.numaContainers.inc({ result }, 0);
    for (const setting of driftSettings.pf) {
      for (const result of driftResults) this.own.drifts.inc({ setting, result }, 0);
    }
    this.own.drifts.inc({ setting: 'driver', result: 'lost' }, 0);
    for (const setting of driftSettings.pod) this.own.drifts.inc({ setting, result: 'reported' }, 0);
    for (const errorType of ['metadata-io', 'metadata-invalid', 'metadata-not-prepared', 'other']) {
      this.own.metadataWriteErrors.inc({ error_type: errorType }, 0);
      this.own.metadataUpdateErrors.inc({ error_type: errorType }, 0);
    }
    this.#addProcessMetrics();
    this.#addUnreadable();
  }

  /**
   * Returns the page that Prometheus scrapes, and its content type.
   * @param accept header of the request; if it contains OpenMetrics, the page has that format, and exemplars
   */
  async render(accept = ''): Promise<{ contentType: string; text: string }> {
    const isOpen = accept.includes(openMetricsType);
    const registry = isOpen ? this.#forOpenMetrics() : this.#registry;
    return { contentType: registry.contentType, text: await registry.metrics() };
  }

  /**
   * Returns a registry of the same metrics for OpenMetrics. It holds objects that inherit from the metrics: prom-client renames
   * counters that it renders in this format.
   */
  #forOpenMetrics(): Registry<OpenMetricsContentType> {
    const registry = new Registry<OpenMetricsContentType>();
    registry.setContentType(Registry.OPENMETRICS_CONTENT_TYPE);
    registry.setDefaultLabels(this.#labels);
    for (const metric of this.#registry.getMetricsAsArray()) registry.registerMetric(Object.create(metric));
    return registry;
  }

  /** Adds the gauges that are read at each scrape. Call it once, when their sources exist. */
  readFrom(sources: NodeFacts): void {
    // Counted once per scrape, for all gauges.
    const counts = shared(async () => sources.deviceCounts());
    this.#read('netdra_devices_offered', 'Devices that are offered to the scheduler.', sources.devicesOffered);
    const problems = "Problems with reading the node's devices in the last scan.";
    this.#read('netdra_device_problems', problems, sources.deviceProblems);
    const policy = 'Whether the newest inventory policy is in force: 0 or 1.';
    this.#read('netdra_policy_valid', policy, () => Number(sources.isPolicyValid()));
    const withheld = 'Devices that new claims cannot get, by reason.';
    this.#readBy('reason', 'netdra_devices_withheld', withheld, async () => (await counts()).withheld);
    const unhealthy = 'Devices with a fault, by condition, tainted or not.';
    this.#readBy('condition', 'netdra_devices_unhealthy', unhealthy, async () => (await counts()).inCondition);
    this.#readPfs(counts);
    const free = 'Devices available to new claims: offered, unallocated and not withheld.';
    this.#read('netdra_devices_free', free, async () => (await counts()).free);
    this.#read('netdra_devices_used', 'Devices held by claims.', sources.devicesUsed);
    this.#read('netdra_devices_attached', "Devices that are in a pod's sandbox.", sources.devicesAttached);
    this.#readWaits(sources);
    this.#read('dra_metadata_files_active', 'Requests that have a metadata file.', sources.metadataFiles);
    const claims = 'Claims by state. A claim stays in preparing or unpreparing only after a failure.';
    const none = { preparing: 0, prepared: 0, unpreparing: 0 };
    if (sources.vfTraffic !== undefined) this.#readTraffic(sources.vfTraffic);
    this.#readBy('state', 'netdra_claims', claims, () => ({ ...none, ...sources.claimsByState() }));
  }

  #readWaits({ waitsMs }: NodeFacts): void {
    this.#read('netdra_sandboxes_waiting', 'Pods that wait for their VFs.', () => waitsMs().length);
    const longest = 'Longest current wait of a pod for its VFs, in seconds; 0 if none waits.';
    this.#read('netdra_sandbox_wait_max_seconds', longest, () => Math.max(0, ...waitsMs()) / 1_000);
  }

  #readPfs(counts: () => Promise<DeviceCounts>): void {
    const ofPf = ['pf', 'pf_address'];
    const vfsHelp =
      'VFs of a PF by state: offered to the scheduler, used by claims, free for new claims, withheld from new claims, or hung. A VF can be in several states.';
    this.#readAll('netdra_pf_vfs', vfsHelp, [...ofPf, 'state'], async () =>
      (await counts()).pfs.flatMap(({ pf, pciAddress, vfs }) =>
        Object.entries(vfs).map(([state, count]) => [{ pf, pf_address: pciAddress, state }, count] as const),
      ),
    );
    const carrierHelp = 'Whether a PF has a carrier: 0 or 1. Absent while its interface is down.';
    this.#readAll('netdra_pf_carrier', carrierHelp, ofPf, async () =>
      (await counts()).pfs.flatMap(({ pf, pciAddress, hasCarrier }) =>
        hasCarrier === undefined ? [] : [[{ pf, pf_address: pciAddress }, Number(hasCarrier)] as const],
      ),
    );
  }

  /** Adds the traffic counters. @param read called once per scrape, for all these metrics */
  #readTraffic(read: NonNullable<NodeFacts['vfTraffic']>): void {
    const labelNames = ['device', 'namespace', 'pod', 'claim', 'interface'];
    for (const [counter, [name, help]] of Object.entries(trafficMetrics)) {
      const readOrName = this.#orNamed(name, read);
      const collect = async () => {
        const { samples = [] } = (await readOrName()) ?? {};
        metric.reset();
        for (const { labels, counters } of samples) {
          const value = counters[counter as keyof LinkTraffic];
          if (value !== undefined) metric.inc({ ...labels }, value);
        }
      };
      const metric = new Counter({ name, help, labelNames, registers: [this.#registry], collect });
    }
    const missing = 'VFs in pods without traffic counters, by reason: over the limit of VFs, or unreadable.';
    this.#readBy('reason', 'netdra_vf_traffic_missing', missing, async () => ({ ...(await read()).missing }));
  }

  /** Adds those process metrics that dashboards need, under the names that every Prometheus client uses. */
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

  /**
   * Wraps a reading: if it fails, its metric is left out of the page and named there, since the other metrics are needed most
   * then. The reason is not logged here: the driver's work that needs the reading reports it.
   */
  #orNamed<T>(name: string, read: () => T | Promise<T>): () => Promise<T | undefined> {
    return async () => {
      const reading = (async () => await read())();
      const named = reading.then(
        () => undefined,
        () => name,
      );
      this.#readings.push(named);
      return await reading.catch(() => undefined);
    };
  }

  #addUnreadable(): void {
    const readings = this.#readings;
    new Gauge({
      name: 'netdra_metrics_unreadable',
      help: '1 for each metric that could not be read and is missing from this scrape.',
      labelNames: ['metric'],
      registers: [this.#registry],
      async collect() {
        // A scrape starts all readings in one turn of the event loop, before this continues.
        await Promise.resolve();
        const names = await Promise.all(readings.splice(0));
        this.reset();
        for (const metric of names) if (metric !== undefined) this.set({ metric }, 1);
      },
    });
  }

  /** Adds a gauge that is read at each scrape. */
  #read(name: string, help: string, read: () => number | Promise<number>): void {
    const readOrName = this.#orNamed(name, read);
    const collect = async () => {
      const value = await readOrName();
      if (value === undefined) metric.remove();
      else metric.set(value);
    };
    const metric = new Gauge({ name, help, registers: [this.#registry], collect });
  }

  /** Adds a gauge that is read at each scrape, with a label whose values are the keys of the reading. */
  #readBy(label: string, name: string, help: string, read: () => Counts | Promise<Counts>): void {
    this.#readAll(name, help, [label], async () =>
      Object.entries(await read()).map(([value, count]) => [{ [label]: value }, count] as const),
    );
  }

  /**
   * Adds a gauge with a value for each set of labels that `read` returns at a scrape. A set that is no longer returned
   * disappears.
   */
  #readAll(
    name: string,
    help: string,
    labelNames: string[],
    read: () => Promise<(readonly [labels: Record<string, string>, value: number])[]>,
  ): void {
    const readOrName = this.#orNamed(name, read);
    const collect = async () => {
      const values = (await readOrName()) ?? [];
      metric.reset();
      for (const [labels, value] of values) metric.set(labels, value);
    };
    const metric = new Gauge({ name, help, labelNames, registers: [this.#registry], collect });
  }
}

function createOwnMetrics(registers: Registry[]) {
  const counter = <L extends string>(name: string, help: string, labelNames: L[] = []) =>
    new Counter({ name, help, labelNames, registers });
  const gauge = <L extends string>(name: string, help: string, labelNames: L[] = []) =>
    new Gauge({ name, help, labelNames, registers });
  const histogram = <L extends string>(name: string, help: string, buckets: number[], labelNames: L[] = []) =>
    new Histogram({ name, help, buckets, labelNames, registers });
  // Registered afterwards: prom-client refuses to create a metric with exemplars in a registry of the older format.
  const histogramWithExemplars = <L extends string>(name: string, help: string, buckets: number[], labelNames: L[]) => {
    const metric = new Histogram({ name, help, buckets, labelNames, registers: [], enableExemplars: true });
    for (const registry of registers) registry.registerMetric(metric);
    return metric;
  };
  const updateErrors = 'Failed updates of metadata after the claim was prepared.';
  const writeTime = 'Time to write the metadata of one request.';
  const callTime = "Duration of the driver's part of prepare and unprepare calls.";
  const hookTime = 'Duration of NRI hooks, for pods with and without claims.';
  const attachTime = 'Time from the start of the sandbox of a pod until all of its VFs were ready, or the pod ended.';
  const attachErrors = 'Failed attempts to attach the VFs of a claim, by error code. The driver retries them.';
  const registrations = 'Registrations with the kubelet and connections to the runtime.';
  const published = 'Whether the published ResourceSlices are up to date: 0 or 1.';
  const apiErrors = 'Failed writes to the API server, by object: slices, status, events or nodes.';
  const numa = 'Containers with exclusive CPUs and devices, by the result of comparing their NUMA nodes.';
  const drifts = 'Settings of VFs in pods that differed from class and claim: restored, lost, or only reported.';
  const expiry = 'Expiry of the certificate for metrics and probes, Unix time in seconds.';
  const lifetime = 'How long the certificate for metrics and probes is valid in all, in seconds.';
  const stalls = 'Stalls of the event loop beyond the threshold.';
  return {
    metadataWrites: counter('dra_metadata_writes_total', 'Metadata writes, including updates.'),
    metadataWriteErrors: counter('dra_metadata_write_errors_total', 'Failed metadata writes, by error code.', [
      'error_type',
    ]),
    metadataUpdateErrors: counter('dra_metadata_update_errors_total', updateErrors, ['error_type']),
    metadataWriteSeconds: histogram('dra_metadata_write_duration_seconds', writeTime, writeBuckets),
    callSeconds: histogram('netdra_claim_duration_seconds', callTime, callBuckets, ['operation', 'result']),
    claimErrors: counter('netdra_claim_errors_total', 'Failed claims, by error code.', ['operation', 'code']),
    hookSeconds: histogram('netdra_hook_duration_seconds', hookTime, callBuckets, ['hook', 'result']),
    hookErrors: counter('netdra_hook_errors_total', 'Failed NRI events, by error code.', ['hook', 'code']),
    attachSeconds: histogramWithExemplars<'result' | 'phase' | 'pod_uid'>(
      'netdra_attach_duration_seconds',
      attachTime,
      attachBuckets,
      ['result', 'phase'],
    ),
    attachErrors: counter('netdra_attach_errors_total', attachErrors, ['code']),
    numaContainers: counter('netdra_numa_containers_total', numa, ['result']),
    drifts: counter('netdra_settings_drift_total', drifts, ['setting', 'result']),
    connected: gauge('netdra_connected', 'Whether the driver is registered with the peer: 0 or 1.', ['peer']),
    connects: counter('netdra_connects_total', registrations, ['peer']),
    published: gauge('netdra_slices_published', published),
    apiWriteErrors: counter('netdra_api_write_errors_total', apiErrors, ['object', 'code']),
    certificateExpiry: gauge('netdra_certificate_expiry_timestamp_seconds', expiry),
    certificateLifetime: gauge('netdra_certificate_lifetime_seconds', lifetime),
    stalls: counter('netdra_event_loop_stalls_total', stalls),
    longestStallSeconds: gauge('netdra_event_loop_stall_max_seconds', 'The longest stall since the start.'),
  };
}
