import { createConnection, Socket } from 'node:net';
import { NriError } from './errors.ts';

/**
 * Connects to a unix socket.
 * @throws NriError `not-connected` if nothing listens there, or the signal's reason
 */
export function dial(path: string, signal: AbortSignal): Promise<Socket> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason);
    const socket = createConnection({ path });
    const onAbort = () => {
      socket.destroy();
      reject(signal.reason);
    };
    signal.addEventListener('abort', onAbort, { once: true });
    // Stays on the socket: without a listener an error before the next owner takes over would end the process.
    socket.on('error', (cause) => {
      signal.removeEventListener('abort', onAbort);
      const hint = 'is NRI enabled in the runtime, and the directory of its socket mounted (not the socket itself)?';
      reject(new NriError('not-connected', `cannot connect to ${path}: ${cause.message}`, { cause, hint }));
    });
    socket.once('connect', () => {
      signal.removeEventListener('abort', onAbort);
      resolve(socket);
    });
  });
}

/**
 * The socket that a runtime hands to a plugin that it started itself.
 * @throws NriError `not-connected` if the descriptor is not a socket
 */
export function adoptSocket(fd: number): Socket {
  try {
    return new Socket({ fd, readable: true, writable: true });
  } catch (cause) {
    throw new NriError('not-connected', `descriptor ${fd} from NRI_PLUGIN_SOCKET is not a socket`, { cause });
  }
}
