import { mkdir, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { Server, ServerCredentials, type ServiceDefinition, type UntypedServiceImplementation } from '@grpc/grpc-js';
import { KubeletPluginError } from './errors.ts';

/** `sizeof(sockaddr_un.sun_path)` less the closing zero byte: linux/un.h. */
const maxSocketPathBytes = 107;

export interface GrpcService {
  definition: ServiceDefinition;
  handlers: object;
}

/**
 * Serves gRPC on a unix socket. A stale socket file is removed first, and ours when we stop.
 * @throws KubeletPluginError `socket-unavailable`
 */
export async function serveGrpc(path: string, services: GrpcService[]): Promise<AsyncDisposable> {
  if (Buffer.byteLength(path) > maxSocketPathBytes) {
    throw new KubeletPluginError(
      'socket-unavailable',
      `socket path ${path} is longer than ${maxSocketPathBytes} bytes`,
      {
        path,
        hint: 'choose a shorter directory or driver name',
      },
    );
  }
  const server = new Server();
  for (const { definition, handlers } of services) {
    server.addService(definition, handlers as UntypedServiceImplementation);
  }
  try {
    await mkdir(dirname(path), { recursive: true, mode: 0o750 });
    await rm(path, { force: true });
    await new Promise<void>((resolve, reject) =>
      server.bindAsync(`unix:${path}`, ServerCredentials.createInsecure(), (error) =>
        error ? reject(error) : resolve(),
      ),
    );
  } catch (cause) {
    server.forceShutdown();
    throw new KubeletPluginError('socket-unavailable', `cannot listen on ${path}`, { cause, path });
  }
  return {
    async [Symbol.asyncDispose]() {
      server.forceShutdown();
      await rm(path, { force: true });
    },
  };
}
