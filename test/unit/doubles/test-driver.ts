import { rmSync } from 'node:fs';
import { join } from 'node:path';
import {
  Server,
  ServerCredentials,
  type ServerUnaryCall,
  type ServiceDefinition,
  type sendUnaryData,
} from '@grpc/grpc-js';
import { loadProto } from '../../../src/proto.ts';
import type { PrepareResponse, UnprepareResponse, WireClaim, WireDevice } from '../../doubles/kubelet-dra-client.ts';

export interface TestDriverOptions {
  dir: string;
  driver: string;
  /** Distinguishes instances of one driver. */
  instance?: string;
  type?: string;
  /** What it says its endpoint is. Default: where it serves. */
  endpoint?: string;
  supportedVersions?: string[];
  getInfoDelayMs?: number;
  prepare?: (claims: WireClaim[]) => PrepareResponse | Error | Promise<PrepareResponse>;
  unprepare?: (claims: WireClaim[]) => UnprepareResponse | Error;
}

/** A minimal DRA driver: both services on grpc-js, the answers given by the test, the calls kept. */
export class TestDriver implements Disposable {
  readonly socketPath: string;
  readonly endpoint: string;
  readonly statuses: { pluginRegistered: boolean; error: string }[] = [];
  readonly calls: { method: string; claims: WireClaim[] }[] = [];
  /** `:authority` of every call, after the name of the method. */
  readonly authorities: string[] = [];
  readonly #options: TestDriverOptions;
  readonly #servers: Server[] = [];

  private constructor(options: TestDriverOptions) {
    this.#options = options;
    const base = options.instance === undefined ? options.driver : `${options.driver}-${options.instance}`;
    this.socketPath = join(options.dir, `${base}-reg.sock`);
    this.endpoint = options.endpoint ?? join(options.dir, 'dra', `${base}.sock`);
  }

  static async start(options: TestDriverOptions): Promise<TestDriver> {
    const driver = new TestDriver(options);
    if (options.endpoint === undefined) {
      const handlers = driver.#draHandlers();
      await driver.#serve(driver.endpoint, [
        [service('dra-v1.proto', 'k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin'), handlers],
        [service('dra-v1beta1.proto', 'k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin'), handlers],
      ]);
    }
    const registration = service('plugin-registration.proto', 'pluginregistration.Registration');
    await driver.#serve(driver.socketPath, [[registration, driver.#registrationHandlers()]]);
    return driver;
  }

  /** Ends as a process does that is killed: the sockets' files stay. */
  kill(): void {
    for (const server of this.#servers) server.forceShutdown();
  }

  [Symbol.dispose](): void {
    this.kill();
    rmSync(this.socketPath, { force: true });
  }

  async #serve(path: string, services: [ServiceDefinition, Record<string, unknown>][]): Promise<void> {
    const server = new Server();
    for (const [definition, handlers] of services) server.addService(definition, handlers as never);
    this.#servers.push(server);
    rmSync(path, { force: true });
    await new Promise<void>((resolve, reject) =>
      server.bindAsync(`unix:${path}`, ServerCredentials.createInsecure(), (error) =>
        error ? reject(error) : resolve(),
      ),
    );
  }

  #registrationHandlers(): Record<string, unknown> {
    const {
      type = 'DRAPlugin',
      driver,
      supportedVersions = ['v1.DRAPlugin', 'v1beta1.DRAPlugin'],
      getInfoDelayMs = 0,
    } = this.#options;
    return {
      GetInfo: (call: ServerUnaryCall<object, object>, answer: sendUnaryData<object>) => {
        this.authorities.push(`GetInfo ${call.getHost()}`);
        setTimeout(
          () => answer(null, { type, name: driver, endpoint: this.endpoint, supportedVersions }),
          getInfoDelayMs,
        );
      },
      NotifyRegistrationStatus: (
        call: ServerUnaryCall<{ pluginRegistered: boolean; error: string }, object>,
        answer: sendUnaryData<object>,
      ) => {
        this.statuses.push(call.request);
        answer(null, {});
      },
    };
  }

  #draHandlers(): Record<string, unknown> {
    const { prepare = (claims) => prepared(claims, () => []), unprepare = unprepared } = this.#options;
    const handle =
      (method: string, answerTo: (claims: WireClaim[]) => object | Promise<object>) =>
      async (call: ServerUnaryCall<{ claims: WireClaim[] }, object>, answer: sendUnaryData<object>) => {
        const { claims } = call.request;
        this.calls.push({
          method: `${call.getPath().split('/')[1]?.split('.').slice(-2).join('.')}/${method}`,
          claims,
        });
        this.authorities.push(`${method} ${call.getHost()}`);
        const response = await answerTo(claims);
        if (response instanceof Error) answer({ code: 2, details: response.message });
        else answer(null, response);
      };
    return {
      NodePrepareResources: handle('NodePrepareResources', prepare),
      NodeUnprepareResources: handle('NodeUnprepareResources', unprepare),
    };
  }
}

/** The answer that prepares all claims. */
export function prepared(claims: WireClaim[], devices: (claim: WireClaim) => WireDevice[]): PrepareResponse {
  return { claims: Object.fromEntries(claims.map((claim) => [claim.uid, { devices: devices(claim), error: '' }])) };
}

export function unprepared(claims: WireClaim[]): UnprepareResponse {
  return { claims: Object.fromEntries(claims.map(({ uid }) => [uid, { error: '' }])) };
}

export function wireDevice(deviceName: string, requestNames: string[], cdiDeviceIds: string[]): WireDevice {
  return { requestNames, poolName: 'node-1', deviceName, cdiDeviceIds };
}

function service(file: string, name: string): ServiceDefinition {
  return loadProto(file)[name] as unknown as ServiceDefinition;
}
