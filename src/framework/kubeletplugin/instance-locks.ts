import { join } from 'node:path';
import { type Clock, systemClock } from '../../lib/clock.ts';
import { CloseWatch } from '../../lib/close-watch.ts';
import { type Extent, FileMutex } from '../../lib/file-mutex.ts';
import { KeyedMutex, type Locks } from '../../lib/keyed-mutex.ts';
import { KubeletPluginError } from './errors.ts';

/** Locks of one driver instance; disposing releases them. */
export interface InstanceLocks extends Disposable {
  /** Locks of claims, by `claimKey`, and of their metadata files. */
  locks: Locks;
  /** Lock that makes calls run one at a time in all instances. */
  turns: Locks;
}

/**
 * Opens a mutex that the instances of a driver share as a file, for the option `locks`; disposing releases its keys. Creates file
 * and directory if they are missing.
 * @throws KubeletPluginError `lock-unavailable`, as do the mutex's methods
 */
export function openFileMutex(path: string): FileMutex {
  return new FileMutex(path, new CloseWatch(systemClock), KubeletPluginError);
}

/**
 * Opens the locks of an instance. With a pod UID the locks are files in the data directory, and calls also take the Go helper's
 * lock, so that in a rolling update a driver may switch between the Go helper and this one.
 * Source: k8s.io/dynamic-resource-allocation/kubeletplugin, `RollingUpdate`: a lock of the whole file `serialize.lock`.
 * @throws KubeletPluginError `lock-unavailable`
 */
export function openInstanceLocks(
  { dataDir, podUid, locks }: { dataDir: string; podUid?: string | undefined; locks?: Locks },
  clock: Clock,
): InstanceLocks {
  if (podUid === undefined || locks !== undefined) {
    const inProcess = locks ?? new KeyedMutex();
    return { locks: inProcess, turns: inProcess, [Symbol.dispose]: () => undefined };
  }
  using stack = new DisposableStack();
  const open = (name: string, extent: Extent) =>
    stack.use(new FileMutex(join(dataDir, name), new CloseWatch(clock), KubeletPluginError, extent));
  const opened = { locks: open('claims.lock', 'key'), turns: open('serialize.lock', 'file') };
  const owned = stack.move();
  return { ...opened, [Symbol.dispose]: () => owned.dispose() };
}
