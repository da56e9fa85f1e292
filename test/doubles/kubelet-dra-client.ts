import {
  Client,
  connectivityState,
  credentials,
  Metadata,
  type MethodDefinition,
  type ServiceError,
  status,
} from '@grpc/grpc-js';
import type { PackageDefinition } from '@grpc/proto-loader';
import { loadProto } from '../../src/lib/proto.ts';

/** A claim in the kubelet's calls to a driver. */
export interface WireClaim {
  namespace: string;
  uid: string;
  name: string;
}

export interface WireDevice {
  requestNames: string[];
  poolName: string;
  deviceName: string;
  cdiDeviceIds: string[];
  /** Absent with v1beta1. */
  shareId?: string;
}

export interface PrepareResponse {
  claims: Record<string, { devices: WireDevice[]; error: string }>;
}

export interface UnprepareResponse {
  claims: Record<string, { error: string }>;
}

/** Service names as drivers register them, in the kubelet's order of preference, with the contract of each. */
export const draServices = {
  'v1.DRAPlugin': { proto: 'dra-v1.proto', service: 'k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin' },
  'v1beta1.DRAPlugin': { proto: 'dra-v1beta1.proto', service: 'k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin' },
} as const;
export type DraServiceName = keyof typeof draServices;

export function isDraServiceName(name: string): name is DraServiceName {
  return name in draServices;
}

/** A unary client for one service on a unix socket. */
export class UnixGrpcClient implements Disposable {
  readonly #client: Client;
  readonly #methods: Record<string, MethodDefinition<object, object>>;

  /** @param authority the server's view of `:authority`; the default is grpc's own for unix sockets, `localhost` */
  constructor(socketPath: string, definition: PackageDefinition, service: string, authority?: string) {
    this.#client = new Client(`unix:${socketPath}`, credentials.createInsecure(), {
      // A separate pool: otherwise a driver that returns on the same path would get the old connection.
      'grpc.use_local_subchannel_pool': 1,
      ...(authority === undefined ? {} : { 'grpc.default_authority': authority }),
    });
    this.#methods = definition[service] as unknown as Record<string, MethodDefinition<object, object>>;
  }

  /** @throws if there is no connection within the time */
  async waitForReady(timeoutMs: number): Promise<void> {
    await new Promise<void>((resolve, reject) =>
      this.#client.waitForReady(Date.now() + timeoutMs, (error) => (error ? reject(error) : resolve())),
    );
  }

  /** @throws ServiceError */
  async call<Response>(method: string, request: object, timeoutMs: number): Promise<Response> {
    const definition = this.#methods[method];
    if (definition === undefined) throw new Error(`the contract has no method ${method}`);
    const { path, requestSerialize, responseDeserialize } = definition;
    return await new Promise<Response>((resolve, reject) =>
      this.#client.makeUnaryRequest(
        path,
        requestSerialize,
        responseDeserialize,
        request,
        new Metadata(),
        { deadline: Date.now() + timeoutMs },
        (error: ServiceError | null, response?: object) => (error ? reject(error) : resolve(response as Response)),
      ),
    );
  }

  /** Keeps the connection up and reports when it is established or lost, until the client is closed. */
  watchConnection(onChange: (isConnected: boolean) => void): void {
    const channel = this.#client.getChannel();
    let wasConnected = false;
    const look = () => {
      const state = channel.getConnectivityState(true);
      if (state === connectivityState.SHUTDOWN) return;
      const isConnected = state === connectivityState.READY;
      if (isConnected !== wasConnected) onChange(isConnected);
      wasConnected = isConnected;
      // Closing the channel reports an error here, which ends the watch.
      channel.watchConnectivityState(state, Infinity, (error) => {
        if (error === undefined || error === null) look();
      });
    };
    look();
  }

  [Symbol.dispose](): void {
    this.#client.close();
  }
}

/** The kubelet's end of a driver's DRA socket. Usable directly for calls that a well-behaved kubelet never makes. */
export class DraClient implements Disposable {
  readonly endpoint: string;
  readonly service: DraServiceName;
  readonly #client: UnixGrpcClient;
  readonly #timeoutMs: number;

  constructor(endpoint: string, service: DraServiceName = 'v1.DRAPlugin', timeoutMs = 45_000) {
    this.endpoint = endpoint;
    this.service = service;
    this.#timeoutMs = timeoutMs;
    const { proto, service: fullName } = draServices[service];
    this.#client = new UnixGrpcClient(endpoint, loadProto(proto), fullName);
  }

  /** @throws ServiceError */
  nodePrepareResources(claims: WireClaim[], timeoutMs = this.#timeoutMs): Promise<PrepareResponse> {
    return this.#client.call('NodePrepareResources', { claims }, timeoutMs);
  }

  /** @throws ServiceError */
  nodeUnprepareResources(claims: WireClaim[], timeoutMs = this.#timeoutMs): Promise<UnprepareResponse> {
    return this.#client.call('NodeUnprepareResources', { claims }, timeoutMs);
  }

  watchConnection(onChange: (isConnected: boolean) => void): void {
    this.#client.watchConnection(onChange);
  }

  [Symbol.dispose](): void {
    this.#client[Symbol.dispose]();
  }
}

/** A failed call in grpc-go's format: `rpc error: code = Unknown desc = …`. */
export function formatRpcError(error: unknown): string {
  if (!(error instanceof Error) || !('code' in error) || !('details' in error)) return String(error);
  const name = Object.entries(status).find(([, code]) => code === error.code)?.[0] ?? String(error.code);
  const words = name.toLowerCase().split('_');
  // grpc-go writes OK in upper case and the others in camel case.
  const code = name === 'OK' ? name : words.map((word) => word.charAt(0).toUpperCase() + word.slice(1)).join('');
  return `rpc error: code = ${code} desc = ${error.details}`;
}
