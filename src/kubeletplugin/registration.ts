import { type ServerUnaryCall, type ServiceDefinition, type sendUnaryData, status } from '@grpc/grpc-js';
import { loadProto } from '../proto.ts';

/** What the kubelet said to our registration. */
export type RegistrationStatus = { registered: true } | { registered: false; error: string };

export interface RegistrationOptions {
  driver: string;
  /** Absolute path of the DRA socket; the kubelet must see it under the same path. */
  endpoint: string;
  /** Service names, preferred first: the kubelet takes the first that it knows. */
  services: string[];
  onStatus: (status: RegistrationStatus) => void;
}

/** The service on the registration socket. Source: kubelet pluginregistration v1. */
export function createRegistrationService(options: RegistrationOptions) {
  return {
    definition: loadProto('plugin-registration.proto')['pluginregistration.Registration'] as ServiceDefinition,
    handlers: {
      GetInfo(_call: ServerUnaryCall<object, unknown>, callback: sendUnaryData<unknown>) {
        callback(null, {
          type: 'DRAPlugin',
          name: options.driver,
          endpoint: options.endpoint,
          supportedVersions: options.services,
        });
      },
      NotifyRegistrationStatus(
        { request }: ServerUnaryCall<{ pluginRegistered: boolean; error: string }, unknown>,
        callback: sendUnaryData<unknown>,
      ) {
        if (request.pluginRegistered) {
          options.onStatus({ registered: true });
          callback(null, {});
          return;
        }
        options.onStatus({ registered: false, error: request.error });
        callback({ code: status.UNKNOWN, details: `failed registration process: ${request.error}` });
      },
    },
  };
}
