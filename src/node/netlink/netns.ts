import { closeSync, fstatSync, openSync, statfsSync, writeSync } from 'node:fs';
import koffi from 'koffi';
import { errnoCode } from '../../lib/errors.ts';
import { NetlinkError, type NetlinkErrorCode, type NetlinkErrorDetails, otherHint } from './errors.ts';
import { loadSystemCalls } from './system-calls.ts';

/** Linux `NSFS_MAGIC`: magic number of the file system that all namespaces are in. */
const nsfsMagic = 0x6e736673;
/** Linux `CLONE_NEWNET`: makes setns(2) refuse namespaces of another type. */
const cloneNewNet = 0x40000000;
/** Hints for a namespace that cannot be opened, by errno. */
const openHints: Record<string, string> = {
  EACCES: 'run as root with CAP_SYS_ADMIN',
  EPERM: 'run as root with CAP_SYS_ADMIN',
  EMFILE: "the driver has reached its limit of open files: raise the container runtime's LimitNOFILE",
  ENFILE: 'the node has reached its limit of open files: raise the sysctl fs.file-max',
};
// The path is that of the thread, not of the process: setns(2) moves only the calling thread.
const ownNetnsPath = '/proc/thread-self/ns/net';

/**
 * A network namespace that an open descriptor keeps alive. Two handles refer to the same namespace if their `inode` is equal;
 * paths can be reused. While a handle or a connection into the namespace is open, the kernel does not destroy the namespace,
 * so interfaces in it do not return to the host. A handle also keeps a mount at its path busy. Close both as soon as
 * possible.
 */
export class NetnsHandle implements Disposable {
  readonly path: string;
  readonly inode: { readonly dev: bigint; readonly ino: bigint };
  #fd: number | undefined;

  private constructor(path: string, fd: number) {
    this.path = path;
    this.#fd = fd;
    const { dev, ino } = fstatSync(fd, { bigint: true });
    this.inode = { dev, ino };
  }

  /**
   * Opens the namespace at a path.
   * @param path `/proc/<pid>/ns/net`, or a path where a runtime has mounted the namespace, e.g. `/var/run/netns/cni-…`
   * @param file file to open instead, such as a descriptor of the namespace
   * @throws NetlinkError `netns-missing` if nothing is there, `netns-invalid` if it is something else, `netns-refused` if it
   * cannot be opened
   */
  static open(path: string, file = path): NetnsHandle {
    let fd: number;
    try {
      fd = openSync(file, 'r');
    } catch (cause) {
      const errno = errnoCode(cause);
      const [code, hint] = ['ENOENT', 'ESRCH'].includes(errno ?? '')
        ? (['netns-missing', 'the pod or process it belonged to is gone'] as const)
        : (['netns-refused', openHints[errno ?? ''] ?? otherHint] as const);
      throw failure(code, `cannot open network namespace ${path}`, path, { cause, errno, hint });
    }
    try {
      assertNamespace(path, fd);
      return new NetnsHandle(path, fd);
    } catch (error) {
      closeSync(fd);
      throw error;
    }
  }

  /**
   * Opens the namespace at a path; `undefined` if there is none. If a runtime is killed, a plain file may remain at the path.
   */
  static openIfThere(path: string): NetnsHandle | undefined {
    try {
      return NetnsHandle.open(path);
    } catch (error) {
      if (error instanceof NetlinkError && ['netns-missing', 'netns-invalid'].includes(error.code)) return undefined;
      throw error;
    }
  }

  /** Opens the network namespace of this thread. In the driver, this is the host's namespace. */
  static own(): NetnsHandle {
    return NetnsHandle.open(ownNetnsPath);
  }

  /** Open descriptor. @throws NetlinkError `netlink-closed` after disposal */
  get fd(): number {
    if (this.#fd !== undefined) return this.#fd;
    throw failure('netlink-closed', `the handle of network namespace ${this.path} is closed`, this.path);
  }

  equals(other: NetnsHandle): boolean {
    return this.inode.dev === other.inode.dev && this.inode.ino === other.inode.ino;
  }

  [Symbol.dispose](): void {
    if (this.#fd === undefined) return;
    closeSync(this.#fd);
    this.#fd = undefined;
  }
}

function assertNamespace(path: string, fd: number): void {
  if (statfsSync(`/proc/self/fd/${fd}`).type === nsfsMagic) return;
  // A plain file remains after the unmount, or is visible in a container to which mounts do not propagate.
  throw failure('netns-invalid', `${path} is a file, but no namespace is mounted on it`, path, {
    hint: 'the pod is gone, or the directory is mounted into our container without mountPropagation: HostToContainer',
  });
}

/** The process's own namespace, opened once: every call of {@link openInNetns} returns to it. */
let home: NetnsHandle | undefined;

/**
 * Runs `create` inside another network namespace and returns to the own one, in one synchronous step: nothing else may run in
 * between, since this is the main thread. `create` opens a socket, which stays in the namespace. It must not start a thread,
 * a child process or asynchronous file access, which would inherit the namespace.
 * @throws NetlinkError `netns-refused`; errors of `create`
 */
export function openInNetns<T>(netns: NetnsHandle, create: () => T): T {
  home ??= NetnsHandle.own();
  const errno = enter(netns.fd);
  if (errno !== undefined) throw refusedEntry(netns, errno);
  let created: T;
  try {
    created = create();
  } finally {
    goBack(home);
  }
  if (isThenable(created)) throw new TypeError('openInNetns: create must be synchronous, but it returned a promise');
  return created;
}

/** Moves this thread into a network namespace. @returns the name of the error if the kernel refuses */
function enter(fd: number): string | undefined {
  const { setns, errno } = loadSystemCalls();
  return setns(fd, cloneNewNet) === 0 ? undefined : errnoName(errno());
}

/** Returns the name of a kernel error, such as `EPERM`. */
export function errnoName(errno: number): string {
  const entry = Object.entries(koffi.os.errno).find(([, value]) => value === errno);
  return entry?.[0] ?? `errno ${errno}`;
}

function refusedEntry({ path }: NetnsHandle, errno: string): NetlinkError {
  const hint = errno === 'EINVAL' ? 'it is a namespace of another type' : 'give the process CAP_SYS_ADMIN';
  return failure('netns-refused', `cannot enter network namespace ${path} (${errno})`, path, { errno, hint });
}

function failure(code: NetlinkErrorCode, message: string, path: string, details: NetlinkErrorDetails = {}) {
  return new NetlinkError(code, message, { netns: path, path, ...details });
}

function goBack(home: NetnsHandle): void {
  let errno: string | undefined;
  try {
    errno = enter(home.fd);
  } catch (error) {
    errno = String(error);
  }
  if (errno === undefined) return;
  // The process must not continue in a pod's namespace, which the driver would take for the host's.
  writeSync(2, `netdra: cannot return to its own network namespace (${errno}), aborting\n`);
  process.abort();
}

function isThenable(value: unknown): boolean {
  return typeof value === 'object' && value !== null && 'then' in value && typeof value.then === 'function';
}
