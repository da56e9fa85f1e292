import { closeSync, openSync, readFileSync, write, writeSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { resolvesWithin, systemClock } from '../../lib/clock.ts';
import { errnoCode } from '../../lib/errors.ts';
import { KeyedMutex } from '../../lib/keyed-mutex.ts';
import { assertInterfaceName } from './checks.ts';
import { NetlinkError, otherHint } from './errors.ts';
import { type NetnsHandle, openInNetns } from './netns.ts';
import { takeThread } from './threads.ts';

/** Keys of sysctls that affect only one interface. IFNAME stands for its name, as in the CNI plugin tuning. */
export const interfaceSysctlPattern = /^net\.(ipv[46])\.(conf|neigh)\.IFNAME\.([a-z0-9_]+)$/;

/** Sysctls of an interface by key, such as `net.ipv4.conf.IFNAME.arp_ignore`. */
export type InterfaceSysctls = Record<string, string | number>;

/**
 * Sysctls that every pod gets and that the kernel sets without a lock (`proc_dointvec`).
 * Source: Linux `net/ipv6/addrconf.c`, `net/ipv4/devinet.c`.
 */
const keysWithoutLock = new Set([
  'net.ipv6.conf.IFNAME.accept_ra',
  'net.ipv6.conf.IFNAME.autoconf',
  'net.ipv6.conf.IFNAME.accept_redirects',
  'net.ipv6.conf.IFNAME.ndisc_notify',
  'net.ipv4.conf.IFNAME.arp_notify',
]);

export interface SysctlOptions {
  /** Path of the host's `/proc/sys`. The `/proc/sys` of a container is read-only, so it must be mounted elsewhere. */
  procSysDir?: string;
  /** Whether to skip keys that the kernel does not have for this interface, such as IPv6 keys on a node without IPv6. */
  skipMissing?: boolean;
  /** Time limit for one key, ms. Default: 10 s. */
  timeoutMs?: number;
}

/** Lock for two writes at a time. They wait for the kernel's lock in threads, of which one is left to netlink requests. */
const turns = new KeyedMutex(2);

/** A sysctl to set, with its open file. */
interface Setting {
  key: string;
  value: string | number;
  fd: number;
}

/**
 * Sets sysctls of an interface, in order. The kernel assigns a file below `/proc/sys/net` to the namespace of the thread that
 * opens it, so all files are opened inside the namespace, in one synchronous step. They are written in other threads, except
 * for {@link keysWithoutLock}: for some keys, the kernel waits for its lock of all links, which others may hold for seconds.
 * @returns the keys that were skipped
 * @throws NetlinkError `sysctl-refused` with the key. Earlier keys are already set then, unless a file cannot be opened
 */
export async function writeInterfaceSysctls(
  netns: NetnsHandle,
  interfaceName: string,
  sysctls: InterfaceSysctls,
  { procSysDir = '/proc/sys', skipMissing = false, timeoutMs = 10_000 }: SysctlOptions = {},
): Promise<string[]> {
  const files = Object.entries(sysctls).map(([key, value]) => {
    const path = pathOf(key, interfaceName, procSysDir);
    if (path === undefined) throw refused(key, value, netns, undefined);
    return { key, value, path };
  });
  const [settings, skipped]: [Setting[], string[]] = [[], []];
  try {
    openInNetns(netns, () => {
      for (const { key, value, path } of files) {
        try {
          // The file is never created: if it is missing, the kernel does not know the key.
          settings.push({ key, value, fd: openSync(path, 'r+') });
        } catch (cause) {
          if (!skipMissing || errnoCode(cause) !== 'ENOENT') throw refused(key, value, netns, cause);
          skipped.push(key);
        }
      }
    });
    for (let next = settings.shift(); next !== undefined; next = settings.shift()) {
      if (keysWithoutLock.has(next.key)) writeAtOnce(next, netns);
      else await writeSetting(next, netns, timeoutMs);
    }
    return skipped;
  } finally {
    for (const { fd } of settings) closeSync(fd);
  }
}

function writeAtOnce({ key, value, fd }: Setting, netns: NetnsHandle): void {
  try {
    writeSync(fd, String(value));
  } catch (cause) {
    throw refused(key, value, netns, cause);
  } finally {
    closeSync(fd);
  }
}

/** Writes a sysctl. Closes the file when the kernel has finished, which may be after the time limit. */
async function writeSetting({ key, value, fd }: Setting, netns: NetnsHandle, timeoutMs: number): Promise<void> {
  using deadline = systemClock.deadline(timeoutMs);
  const turn = await takeTurn(deadline.signal).catch(() => {
    closeSync(fd);
    throw late(key, value, netns, `the write waited ${timeoutMs} ms for other settings and requests of the node`);
  });
  const written = promisify(write)(fd, String(value)).finally(() => {
    closeSync(fd);
    turn[Symbol.dispose]();
  });
  const isDone = await resolvesWithin(systemClock, deadline.remainingMs(), written).catch((cause: unknown) => {
    throw refused(key, value, netns, cause);
  });
  if (!isDone) throw late(key, value, netns, `the kernel has not finished within ${timeoutMs} ms`);
}

/** Waits until a write may begin. @throws the signal's reason if it fires before */
async function takeTurn(signal: AbortSignal): Promise<Disposable> {
  using turn = new DisposableStack();
  turn.use(await turns.acquire('', signal));
  turn.use(await takeThread(signal));
  return turn.move();
}

/**
 * Reads sysctls of an interface, in the form that {@link writeInterfaceSysctls} accepts.
 * @returns values by key, without unreadable keys: the kernel does not have them, or the interface is gone
 */
export function readInterfaceSysctls(
  netns: NetnsHandle,
  interfaceName: string,
  keys: readonly string[],
  { procSysDir = '/proc/sys' }: { procSysDir?: string } = {},
): Map<string, string> {
  const files = keys.map((key): [string, string | undefined] => [key, pathOf(key, interfaceName, procSysDir)]);
  return openInNetns(netns, () => {
    const values = new Map<string, string>();
    for (const [key, path] of files) {
      try {
        if (path !== undefined) values.set(key, readFileSync(path, 'latin1').trim());
      } catch {
        // An unreadable key is left out.
      }
    }
    return values;
  });
}

function pathOf(key: string, interfaceName: string, procSysDir: string): string | undefined {
  assertInterfaceName(interfaceName);
  const [, family, table, name] = interfaceSysctlPattern.exec(key) ?? [];
  if (family === undefined || table === undefined || name === undefined) return undefined;
  // Interface names may contain dots, so the key cannot simply be split at them.
  return join(procSysDir, 'net', family, table, interfaceName, name);
}

const hints: Readonly<Record<string, string>> = {
  ENOENT: 'the kernel has no such key for this interface; IPv6 keys need IPv6 and an MTU of at least 1280',
  EINVAL: 'the kernel does not take this value',
  EROFS: '/proc/sys is read-only in this container: mount that of the host elsewhere and name it with --proc-sys-dir',
  EACCES: 'give the process CAP_NET_ADMIN, and /proc/sys writable',
};

function refused(key: string, value: string | number, netns: NetnsHandle, cause: unknown): NetlinkError {
  const errno = errnoCode(cause);
  const hint =
    cause === undefined
      ? 'use the keys of an interface, with IFNAME in place of its name'
      : (hints[errno ?? ''] ?? otherHint);
  const reason = errno === undefined ? '' : ` (${errno})`;
  const message = `cannot set ${key} to ${JSON.stringify(value)} in ${netns.path}${reason}`;
  return new NetlinkError('sysctl-refused', message, { netns: netns.path, path: netns.path, errno, hint });
}

function late(key: string, value: string | number, { path }: NetnsHandle, why: string): NetlinkError {
  const message = `cannot set ${key} to ${JSON.stringify(value)} in ${path}: ${why}`;
  const hint = 'programs that change many links or routes keep the kernel busy; the write is tried again';
  return new NetlinkError('sysctl-refused', message, { netns: path, path, hint, retriable: true });
}
