import { fileURLToPath } from 'node:url';
import { Client, type ClientUnaryCall, credentials, type ServiceError, status } from '@grpc/grpc-js';
import type { MethodDefinition } from '@grpc/proto-loader';
import { NetdraError } from '../../src/lib/errors.ts';
import { loadProto } from '../../src/lib/proto.ts';
import type { CriMethods } from './cri-types.ts';

export type * from './cri-types.ts';

/** A CRI call that the runtime refused or did not answer. `grpcCode` is the number of the gRPC status. */
export class CriError extends NetdraError {
  readonly grpcCode: number;
  /** The runtime's own message, without our text around it. */
  readonly details: string;

  constructor(method: string, error: ServiceError) {
    super('cri-failed', `CRI ${method} failed: ${error.details}`, {
      cause: error,
      retriable: error.code === status.UNAVAILABLE,
    });
    this.grpcCode = error.code;
    this.details = error.details;
  }
}

export interface CallOptions {
  /** Default 60,000. A sandbox takes as long as CNI and the NRI plugins. */
  timeoutMs?: number;
  signal?: AbortSignal;
}

/** The runtime's CRI services, called like the kubelet does. Connects on the first call, and again after a restart. */
export interface CriClient extends Disposable {
  /** @throws CriError */
  call<Name extends keyof CriMethods>(
    method: Name,
    request: CriMethods[Name]['request'],
    options?: CallOptions,
  ): Promise<CriMethods[Name]['response']>;
}

/** @param socketPath the runtime's gRPC socket */
export function connectCri(socketPath: string): CriClient {
  const methods = loadMethods();
  const client = new Client(`unix://${socketPath}`, credentials.createInsecure(), {
    // The default of a second and more would be added to every restart.
    'grpc.initial_reconnect_backoff_ms': 50,
    'grpc.min_reconnect_backoff_ms': 50,
    'grpc.max_reconnect_backoff_ms': 200,
  });
  return {
    call: (name, request, { timeoutMs = 60_000, signal } = {}) =>
      new Promise((resolve, reject) => {
        const { path, requestSerialize, responseDeserialize } = methods.get(name)!;
        signal?.throwIfAborted();
        const onAbort = () => call.cancel();
        const call: ClientUnaryCall = client.makeUnaryRequest<object, object>(
          path,
          requestSerialize,
          responseDeserialize,
          request,
          { deadline: Date.now() + timeoutMs },
          (error, response) => {
            signal?.removeEventListener('abort', onAbort);
            if (error) reject(new CriError(name, error));
            else resolve(response as never);
          },
        );
        signal?.addEventListener('abort', onAbort, { once: true });
      }),
    [Symbol.dispose]: () => client.close(),
  };
}

function loadMethods(): Map<string, MethodDefinition<object, object>> {
  const definitions = loadProto('cri.proto', fileURLToPath(new URL('../../test/proto', import.meta.url)));
  return new Map(
    ['runtime.v1.RuntimeService', 'runtime.v1.ImageService'].flatMap((service) =>
      Object.entries(definitions[service] as Record<string, MethodDefinition<object, object>>),
    ),
  );
}
