import { Client, type ClientReadableStream, credentials, type MethodDefinition, status } from '@grpc/grpc-js';
import { loadProto } from '../../src/lib/proto.ts';

/** Health in the status of pods. */
export type KubeletHealth = 'Healthy' | 'Unhealthy' | 'Unknown';

interface WireHealth {
  device: { poolName: string; deviceName: string } | null;
  health: 'UNKNOWN' | 'HEALTHY' | 'UNHEALTHY';
  lastUpdatedTime: number;
  healthCheckTimeoutSeconds: number;
  message: string;
}

export interface HealthWatchOptions {
  /** The driver's DRA socket. */
  endpoint: string;
  /** Service names as the driver registered them. */
  services: readonly string[];
  /** Pause before a stream that ended is reopened. Default 5 s. */
  reconnectMs?: number;
  onChange?: () => void;
}

const services = ['v1.DRAResourceHealth', 'v1alpha1.DRAResourceHealth'] as const;

/**
 * The kubelet's end of a driver's health service, as in kubelet 1.37: one stream, reopened after a pause, abandoned
 * on Unimplemented; reported health is discarded when the stream ends, and is unknown when it is too old.
 */
export class HealthWatch implements Disposable {
  /** Every answer, in the order of arrival. */
  readonly received: WireHealth[][] = [];
  /** Number of streams opened. */
  opened = 0;
  /** Whether the driver answered that it does not have the service. */
  isGivenUp = false;
  readonly #options: HealthWatchOptions;
  readonly #client: Client;
  readonly #devices = new Map<string, { heard: WireHealth; message: string }>();
  #stream: ClientReadableStream<{ devices: WireHealth[] }> | undefined;
  #retry: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(options: HealthWatchOptions) {
    this.#options = options;
    this.#client = new Client(`unix:${options.endpoint}`, credentials.createInsecure(), {
      'grpc.use_local_subchannel_pool': 1,
    });
    this.#open();
  }

  health(poolName: string, deviceName: string, now = new Date()): { health: KubeletHealth; message: string } {
    const known = this.#devices.get(`${poolName}/${deviceName}`);
    if (known === undefined) return { health: 'Unknown', message: '' };
    const { lastUpdatedTime, healthCheckTimeoutSeconds, health } = known.heard;
    const timeoutSeconds = healthCheckTimeoutSeconds > 0 ? healthCheckTimeoutSeconds : 30;
    if (now.getTime() / 1000 > lastUpdatedTime + timeoutSeconds) return { health: 'Unknown', message: '' };
    const words = { HEALTHY: 'Healthy', UNHEALTHY: 'Unhealthy', UNKNOWN: 'Unknown' } as const;
    return { health: words[health], message: known.message };
  }

  [Symbol.dispose](): void {
    this.#isClosed = true;
    clearTimeout(this.#retry);
    this.#stream?.cancel();
    this.#client.close();
  }

  #open(): void {
    const service = services.find((name) => this.#options.services.includes(name));
    if (service === undefined || this.#isClosed) return;
    const { path, requestSerialize, responseDeserialize } = methodOf(service);
    this.opened++;
    const stream = this.#client.makeServerStreamRequest(path, requestSerialize, responseDeserialize, {});
    this.#stream = stream as ClientReadableStream<{ devices: WireHealth[] }>;
    this.#stream.on('data', ({ devices }) => this.#take(devices));
    this.#stream.on('error', () => undefined);
    this.#stream.on('status', ({ code }) => this.#ended(code));
  }

  #take(devices: WireHealth[]): void {
    this.received.push(devices);
    for (const heard of devices) {
      if (heard.device === null) continue;
      const { poolName, deviceName } = heard.device;
      this.#devices.set(`${poolName}/${deviceName}`, { heard, message: truncate(heard.message) });
    }
    this.#options.onChange?.();
  }

  #ended(code: status): void {
    this.#devices.clear();
    this.isGivenUp = code === status.UNIMPLEMENTED;
    if (!this.isGivenUp && !this.#isClosed) {
      this.#retry = setTimeout(() => this.#open(), this.#options.reconnectMs ?? 5_000);
    }
    this.#options.onChange?.();
  }
}

function methodOf(service: (typeof services)[number]): MethodDefinition<object, { devices: WireHealth[] }> {
  const [version] = service.split('.');
  const methods = loadProto(`dra-health-${version}.proto`)[service] as unknown as Record<
    string,
    MethodDefinition<object, { devices: WireHealth[] }>
  >;
  const method = methods.NodeWatchResources;
  if (method === undefined) throw new Error(`the contract of ${service} has no method NodeWatchResources`);
  return method;
}

function truncate(message: string): string {
  const bytes = Buffer.from(message);
  return bytes.length <= 1024 ? message : `${bytes.toString('utf8', 0, 1021)}...`;
}
