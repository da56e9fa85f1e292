import { type ServerUnaryCall, type sendUnaryData, status } from '@grpc/grpc-js';
import { abortable } from '../../lib/abort.ts';
import type { Logger } from '../../lib/logger.ts';
import { lazyService } from '../../lib/proto.ts';
import { KubeletPluginError } from './errors.ts';

export type RegistrationStatus = { registered: true } | { registered: false; error: string };

export interface RegistrationOptions {
  driver: string;
  logger: Logger;
  /** See `KubeletPluginOptions`. */
  protoDir?: string;
  /** Absolute path of the DRA socket; the kubelet must see it under the same path. */
  endpoint: string;
  /** Service names, preferred first: the kubelet uses the first one that it supports. */
  services: string[];
  onStatus: (status: RegistrationStatus) => void;
}

/**
 * The service on the registration socket, and the kubelet's last answer. After a refusal the kubelet retries at growing
 * intervals; a restarted kubelet finds the socket by itself. Source: kubelet pluginregistration v1.
 */
export class Registration {
  readonly #options: RegistrationOptions;
  readonly #registered = Promise.withResolvers<void>();
  #status: RegistrationStatus | undefined;

  constructor(options: RegistrationOptions) {
    this.#options = options;
  }

  get status(): RegistrationStatus | undefined {
    return this.#status;
  }

  async whenRegistered(signal: AbortSignal): Promise<void> {
    await abortable(this.#registered.promise, signal, () => {
      const answer =
        this.#status?.registered === false ? `it answered: ${this.#status.error}` : 'it has not called GetInfo';
      const message = `the kubelet has not registered driver ${this.#options.driver}: ${answer}`;
      return new KubeletPluginError('registration-refused', message, {
        cause: signal.reason,
        retriable: true,
        hint: 'check that the kubelet runs, and that the driver and the kubelet see plugins_registry under the same path',
      });
    });
  }

  service() {
    const { driver, endpoint, services, protoDir } = this.#options;
    const { definition } = lazyService(
      'plugin-registration.proto',
      'pluginregistration.Registration',
      { GetInfo: { streams: false }, NotifyRegistrationStatus: { streams: false } },
      protoDir,
    );
    return {
      definition,
      handlers: {
        GetInfo: (_call: unknown, callback: sendUnaryData<unknown>) =>
          callback(null, { type: 'DRAPlugin', name: driver, endpoint, supportedVersions: services }),
        NotifyRegistrationStatus: (
          { request }: ServerUnaryCall<{ pluginRegistered: boolean; error: string }, unknown>,
          callback: sendUnaryData<unknown>,
        ) => {
          this.#take(request.pluginRegistered ? { registered: true } : { registered: false, error: request.error });
          if (request.pluginRegistered) callback(null, {});
          // Same answer as the Go helper's; the kubelet logs it.
          else callback({ code: status.UNKNOWN, details: `failed registration process: ${request.error}` });
        },
      },
    };
  }

  #take(status: RegistrationStatus): void {
    const { driver, endpoint, logger, onStatus } = this.#options;
    this.#status = status;
    const log = { driver, endpoint };
    if (status.registered) logger.info(log, 'registered with the kubelet');
    else logger.error({ ...log, error: status.error }, 'the kubelet refused the registration and will try again');
    if (status.registered) this.#registered.resolve();
    onStatus(status);
  }
}
