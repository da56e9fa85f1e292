import koffi from 'koffi';
import { enterThread, leaveThread } from './threads.ts';

/** Linux `AF_NETLINK`. */
export const netlinkFamily = 16;
/** Offsets in `struct sockaddr_nl`, and its size, in bytes. */
export const addressLayout = { bytes: 12, family: 0, port: 4 } as const;
/** Linux `SOL_NETLINK`. */
const netlinkLevel = 270;
/** Linux `NETLINK_NO_ENOBUFS`, `NETLINK_GET_STRICT_CHK`. */
export const netlinkOptions = { noOverflowErrors: 5, strictChecks: 12 } as const;

interface SystemCalls {
  setns: (descriptor: number, type: number) => number;
  socket: (family: number, type: number, protocol: number) => number;
  bind: (descriptor: number, address: Buffer, bytes: number) => number;
  connect: (descriptor: number, address: Buffer, bytes: number) => number;
  getsockname: (descriptor: number, address: Buffer, size: Buffer) => number;
  setsockopt: (descriptor: number, level: number, option: number, value: Buffer, bytes: number) => number;
  send: (descriptor: number, message: Buffer, bytes: number, flags: number) => number;
  recv: (descriptor: number, buffer: Buffer, bytes: number, flags: number) => number;
  /** Sends a message in a thread. @param isWanted called when a thread is free: if it returns `false`, nothing is sent */
  sendAsync: (descriptor: number, message: Buffer, isWanted: () => boolean) => Promise<number>;
  /** Receives a message in a thread. */
  recvAsync: (descriptor: number, buffer: Buffer, flags: number) => Promise<number>;
  errno: () => number;
}

let resolved: SystemCalls | undefined;

/** Returns the system calls for sockets and namespaces. They are looked up once: koffi never frees the memory of a lookup. */
export function loadSystemCalls(): SystemCalls {
  if (resolved !== undefined) return resolved;
  const library = koffi.load(null);
  const send = library.func('long send(int fd, const void *data, size_t size, int flags)');
  const recv = library.func('long recv(int fd, void *data, size_t size, int flags)');
  resolved = {
    setns: library.func('int setns(int fd, int nstype)'),
    socket: library.func('int socket(int family, int type, int protocol)'),
    bind: library.func('int bind(int fd, const void *address, uint32_t size)'),
    connect: library.func('int connect(int fd, const void *address, uint32_t size)'),
    getsockname: library.func('int getsockname(int fd, void *address, uint32_t *size)'),
    setsockopt: library.func('int setsockopt(int fd, int level, int option, const void *value, uint32_t size)'),
    send,
    recv,
    sendAsync: (descriptor, message, isWanted) => inThread(send, descriptor, message, 0, isWanted),
    recvAsync: (descriptor, buffer, flags) => inThread(recv, descriptor, buffer, flags, () => true),
    errno: () => koffi.errno(),
  };
  return resolved;
}

/** Switches on an option of a netlink socket. @returns whether the kernel supports the option */
export function switchOn(descriptor: number, option: number): boolean {
  const on = Buffer.from([1, 0, 0, 0]);
  return loadSystemCalls().setsockopt(descriptor, netlinkLevel, option, on, on.length) === 0;
}

/** A library function as koffi returns it. */
type KoffiFunction = ReturnType<ReturnType<typeof koffi.load>['func']>;

function inThread(
  call: KoffiFunction,
  descriptor: number,
  data: Buffer,
  flags: number,
  isWanted: () => boolean,
): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  enterThread(() => {
    try {
      if (!isWanted()) throw new Error('given up before a thread was free');
      call.async(descriptor, data, data.length, flags, (error: Error | null, result: number) => {
        leaveThread();
        if (error) reject(error);
        else resolve(result);
      });
    } catch (error) {
      leaveThread();
      reject(error);
    }
  });
  return promise;
}
