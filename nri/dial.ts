import { createConnection, Socket } from 'node:net';
import { NriError } from './errors.ts';
import { onAbort } from './timers.ts';

/** Connects to a unix socket. @throws NriError `not-connected` if nothing listens there, or the signal's reason */
export async function dial(path: string, signal: AbortSignal): Promise<Socket> {
  signal.throwIfAborted();
  const { promise, resolve, reject } = Promise.withResolvers<Socket>();
  const socket = createConnection({ path }, () => resolve(socket));
  // Stays on the socket: an error without a listener would end the process before the next owner adds its own.
  socket.on('error', (cause) => {
    const hint = 'is NRI enabled in the runtime, and the directory of its socket mounted (not the socket itself)?';
    reject(new NriError('not-connected', `cannot connect to ${path}: ${cause.message}`, { cause, hint }));
  });
  using _ = onAbort(signal, () => {
    socket.destroy();
    reject(signal.reason);
  });
  return await promise;
}

/**
 * Adopts the socket that a runtime hands to a plugin that it started itself.
 * @throws NriError `not-connected` if the descriptor is not a socket
 */
export function adoptSocket(fd: number): Socket {
  try {
    return new Socket({ fd, readable: true, writable: true });
  } catch (cause) {
    throw new NriError('not-connected', `descriptor ${fd} from NRI_PLUGIN_SOCKET is not a socket`, { cause });
  }
}
