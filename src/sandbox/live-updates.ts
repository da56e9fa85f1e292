import type { PodSandbox } from '../../nri/index.ts';
import type { Clock } from '../clock.ts';
import { errnoCode } from '../errors.ts';
import type { Logger } from '../logger.ts';
import { type NetnsHandle, NetworkWatch } from '../netlink/index.ts';
import { netnsPathOf, openNetnsIfThere } from './pod-netns.ts';

/** Changes come in bursts: an address is removed and another one set, a link goes down and up. */
const settleMs = 250;
/** A namespace that is gone is let go of within this time. Its VF comes back to the host only then. */
const checkMs = 1_000;

export interface LiveUpdatesOptions {
  clock: Clock;
  logger: Logger;
}

/** Reads the VFs of a pod again and writes what changed. */
export type Refresh = (pod: PodSandbox) => Promise<void>;

interface Watched {
  pod: PodSandbox;
  refresh: Refresh;
  path: string;
  inode: NetnsHandle['inode'];
  watch: NetworkWatch;
  stop: AbortController;
  /** Something changed since the last look. */
  dirty: boolean;
  /** The looks, as long as there is something to look at. */
  looking: Promise<void> | undefined;
}

/**
 * Follows what happens to the VFs of running pods. A watch keeps its network namespace alive, so it ends before a VF is
 * taken out, and by itself when the runtime has let go of the namespace.
 */
export class LiveUpdates implements AsyncDisposable {
  readonly #options: LiveUpdatesOptions;
  /** By sandbox id. */
  readonly #watched = new Map<string, Watched>();
  readonly #stop = new AbortController();
  #checking: Promise<void> | undefined;

  constructor(options: LiveUpdatesOptions) {
    this.#options = options;
  }

  /** How many namespaces are watched. */
  get size(): number {
    return this.#watched.size;
  }

  /** Idempotent. A pod whose namespace is gone already is nothing to watch. @throws NetlinkError `netns-refused` */
  start(pod: PodSandbox, refresh: Refresh): void {
    const path = netnsPathOf(pod);
    if (path === undefined || this.#watched.has(pod.id) || this.#stop.signal.aborted) return;
    using netns = openNetnsIfThere(path);
    if (netns === undefined) return;
    const watched: Watched = {
      pod,
      refresh,
      path,
      inode: netns.inode,
      watch: NetworkWatch.open(netns, () => this.#changed(watched)),
      stop: new AbortController(),
      dirty: false,
      looking: undefined,
    };
    this.#watched.set(pod.id, watched);
    this.#checking ??= this.#check();
    // What changed between the last look and now was not seen.
    this.#changed(watched);
  }

  /** To be called before a VF leaves the sandbox. */
  stop(sandboxId: string): void {
    const watched = this.#watched.get(sandboxId);
    if (watched === undefined) return;
    this.#watched.delete(sandboxId);
    watched.stop.abort();
    watched.watch[Symbol.dispose]();
  }

  async [Symbol.asyncDispose]() {
    this.#stop.abort();
    const looking = [...this.#watched.values()].map((watched) => watched.looking);
    for (const sandboxId of [...this.#watched.keys()]) this.stop(sandboxId);
    await Promise.all([...looking, this.#checking]);
  }

  #changed(watched: Watched): void {
    watched.dirty = true;
    watched.looking ??= this.#look(watched).finally(() => {
      watched.looking = undefined;
    });
  }

  async #look(watched: Watched): Promise<void> {
    const { clock, logger } = this.#options;
    const { pod, refresh, stop } = watched;
    while (watched.dirty) {
      try {
        await clock.sleep(settleMs, stop.signal);
        watched.dirty = false;
        await refresh(pod);
      } catch (error) {
        if (stop.signal.aborted) return;
        const log = { pod: `${pod.namespace}/${pod.name}`, sandbox: pod.id, err: error };
        logger.warn(log, 'a change of the pod could not be written to its metadata');
      }
    }
  }

  async #check(): Promise<void> {
    const { clock } = this.#options;
    while (this.#watched.size > 0) {
      try {
        await clock.sleep(checkMs, this.#stop.signal);
      } catch {
        break;
      }
      for (const [sandboxId, { path, inode }] of this.#watched) {
        if (!isStill(path, inode)) this.stop(sandboxId);
      }
    }
    this.#checking = undefined;
  }
}

function isStill(path: string, inode: NetnsHandle['inode']): boolean {
  try {
    using netns = openNetnsIfThere(path);
    return netns !== undefined && netns.inode.dev === inode.dev && netns.inode.ino === inode.ino;
  } catch (error) {
    // Anything else than that it is gone, such as too many open files, says nothing of the namespace.
    return errnoCode(error) !== 'ENOENT';
  }
}
