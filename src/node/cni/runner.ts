import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '../../lib/clock.ts';
import { failuresOf } from '../../lib/failures-of.ts';
import { KeyedMutex } from '../../lib/keyed-mutex.ts';
import type { Logger } from '../../lib/logger.ts';
import {
  type CniAttachment,
  type CniIpamAttachment,
  type CniTask,
  chainTask,
  describeAttachment,
  ipamTask,
} from './attachment.ts';
import { type CacheEntry, CniCache } from './cache.ts';
import { PluginCaller } from './call.ts';
import { CniError } from './errors.ts';
import { createExec, type Exec } from './exec.ts';
import type { CniPluginConfig } from './network.ts';
import { type CniResult, decodeCniResult, parseCniResult, type RawCniResult } from './result.ts';
import { hasNetns, Teardown } from './teardown.ts';

export interface CniRunnerOptions {
  /** Absolute paths of the directories that are searched for plugins, in this order. */
  binDirs: string[];
  /** Directory in which attachments are stored: for this driver alone, on a disk that survives a reboot of the node. */
  cacheDir: string;
  clock: Clock;
  logger: Logger;
  /** Runs programs. */
  exec?: Exec;
  /** `PATH` of the plugins, for programs such as `iptables`. */
  searchPath?: string;
  /** Time for undoing a failed ADD, ms. */
  undoTimeoutMs?: number;
}

/** The signal ends the operation: a running plugin is killed. */
interface CniCallOptions {
  signal: AbortSignal;
}

const defaultSearchPath = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/**
 * Attaches pods to networks by CNI plugins, and gets addresses from IPAM plugins.
 *
 * Every attachment is stored durably in the cache before its first plugin runs and until its last DEL has succeeded, so
 * that an abandoned one can be found (`cachedAttachments`) and deleted. Operations on one interface of a container run one
 * at a time. The GC command is deliberately not used: it would also free attachments of other runtimes in a network of the
 * same name, which we cannot know. Deleting the cached attachments of deleted pods frees ours.
 *
 * Source: CNI specification 1.1.0, https://www.cni.dev/docs/spec/.
 */
export class CniRunner implements AsyncDisposable {
  readonly #options: CniRunnerOptions;
  readonly #caller: PluginCaller;
  readonly #cache: CniCache;
  readonly #teardown: Teardown;
  readonly #turns = new KeyedMutex();
  readonly #running = new Set<Promise<unknown>>();

  constructor(options: CniRunnerOptions) {
    const { binDirs, cacheDir, clock, logger, exec = createExec(clock), searchPath = defaultSearchPath } = options;
    this.#options = options;
    this.#caller = new PluginCaller({ binDirs, searchPath, exec, clock, logger });
    this.#cache = new CniCache(cacheDir);
    this.#teardown = new Teardown(this.#caller, logger);
  }

  /**
   * Runs the chain. If an identical ADD of the same network, container and interface was completed before, returns its
   * result and runs no plugin; otherwise deletes the earlier attachment first.
   *
   * A failed ADD is undone, best effort; if that fails too, the attachment stays in the cache. The promise rejects when that
   * has ended, also after an abort: the caller keeps the interface to itself until then, in all processes.
   * @throws CniError
   */
  async add(attachment: CniAttachment, options: CniCallOptions): Promise<CniResult> {
    return await this.#add(chainTask(attachment), options);
  }

  /**
   * Runs the chain's DEL, in reverse order, with the configuration of its ADD. Can be repeated, also when the namespace no
   * longer exists.
   *
   * Plugins fail if they cannot find what they should delete. Where there may be nothing to delete, their errors are
   * therefore logged and only transient ones are thrown: for an attachment that is not in the cache (plugins are called
   * anyway, since caches get lost), and for one whose ADD was not completed and whose namespace no longer exists.
   * @throws CniError of the first plugin that fails: the ones before it in the chain are not called, as their devices may
   * still be in use, and the attachment stays in the cache
   */
  async delete(attachment: CniAttachment, options: CniCallOptions): Promise<void> {
    await this.#delete(chainTask(attachment), options);
  }

  /**
   * Runs the chain's DEL if its ADD was begun and the interface has been lost since, so that the next ADD runs the plugins
   * again. Plugins fail if they cannot find what they should delete: their errors are logged, and only transient ones are
   * thrown.
   * @throws CniError
   */
  async deleteLost(attachment: CniAttachment, { signal }: CniCallOptions): Promise<void> {
    const task = chainTask(attachment);
    await this.#inTurn(task, signal, async () => {
      const entry = await this.#readEntry(task);
      if (entry === undefined) return;
      await this.#deleteLeniently(entry, signal);
      await this.#cache.remove(task);
    });
  }

  /**
   * Gets addresses for an interface, without configuring them. Otherwise like {@link add}.
   * @throws CniError
   */
  async ipamAdd(attachment: CniIpamAttachment, options: CniCallOptions): Promise<CniResult> {
    return await this.#add(ipamTask(attachment), options);
  }

  /**
   * Releases addresses. Otherwise like {@link delete}.
   * @throws CniError
   */
  async ipamDelete(attachment: CniIpamAttachment, options: CniCallOptions): Promise<void> {
    await this.#delete(ipamTask(attachment), options);
  }

  /**
   * Returns the attachments that were begun and not deleted since, for cleaning up after deleted pods: see {@link
   * deleteCached}.
   * @returns `problems` lists unusable files
   * @throws CniError `cni-cache-unusable` if the cache as a whole cannot be read
   */
  async cachedAttachments(): Promise<{ attachments: CniTask[]; problems: CniError[] }> {
    const { entries, problems } = await this.#cache.list();
    return { attachments: entries.map(({ kind, attachment }) => ({ kind, attachment })), problems };
  }

  /** @throws CniError as {@link delete} does */
  async deleteCached({ kind, attachment }: CniTask, options: CniCallOptions): Promise<void> {
    await this.#delete({ ...chainTask(attachment), kind }, options);
  }

  /**
   * Only releases the addresses of a cached attachment: others have its device by now, which a DEL of the plugins would
   * change.
   * @throws CniError of the first IPAM plugin that fails
   */
  async releaseCached({ attachment }: CniTask, { signal }: CniCallOptions): Promise<void> {
    const task = chainTask(attachment);
    await this.#inTurn(task, signal, async () => {
      await this.#teardown.releaseAddresses(task, signal);
      await this.#cache.remove(task);
    });
  }

  /** Waits for the operations in progress. */
  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#running);
  }

  #add(task: CniTask, { signal }: CniCallOptions): Promise<CniResult> {
    assertNetnsPath(task);
    return this.#inTurn(task, signal, async () => {
      const known = await this.#clearEarlier(task, signal);
      if (known !== undefined) return known;
      // Missing plugins are found before anything must be undone.
      for (const { type } of task.attachment.network.plugins) {
        await this.#caller.find(type, task.attachment.network.name);
      }
      await this.#cache.write(task);
      const called: CniPluginConfig[] = [];
      try {
        const raw = await this.#runChain(task, called, signal);
        await this.#cache.write({ ...task, result: raw });
        return decode(task, raw);
      } catch (error) {
        await this.#undo(task, called);
        throw error;
      }
    });
  }

  /** @param called collects the plugins that were called, also when one of them fails */
  async #runChain(task: CniTask, called: CniPluginConfig[], signal: AbortSignal): Promise<RawCniResult> {
    const { attachment } = task;
    const { netnsPath } = attachment;
    let prevResult: RawCniResult | undefined;
    for (const plugin of attachment.network.plugins) {
      called.push(plugin);
      const output = await this.#caller.call({ command: 'ADD', plugin, attachment, netnsPath, prevResult }, signal);
      prevResult = parseCniResult(output, subjectOf(task, plugin));
    }
    return prevResult!;
  }

  /** Returns the result of an identical earlier ADD, or deletes an earlier attachment that differs. */
  async #clearEarlier(task: CniTask, signal: AbortSignal): Promise<CniResult | undefined> {
    // An unreadable one may have been completed: without a DEL, its address would never be free again.
    const earlier = await this.#readEntry(task, task);
    if (earlier === undefined) return undefined;
    if (earlier.result !== undefined && !earlier.deleting && isDeepStrictEqual(earlier.attachment, task.attachment)) {
      return decode(earlier, earlier.result);
    }
    if (earlier.result === undefined) await this.#deleteLeniently(earlier, signal);
    else await this.#deleteStrictly(earlier, signal);
    return undefined;
  }

  async #undo(task: CniTask, called: CniPluginConfig[]): Promise<void> {
    const { clock, logger, undoTimeoutMs = 10_000 } = this.#options;
    const { containerId, ifName, network } = task.attachment;
    using deadline = clock.deadline(undoTimeoutMs);
    const problems = await this.#teardown.deleteWhatCan(task, called, deadline.signal);
    try {
      if (problems.length === 0) return await this.#cache.remove(task);
    } catch (error) {
      problems.push(error);
    }
    for (const err of problems) {
      logger.warn({ err, network: network.name, containerId, ifName }, 'cannot undo a failed CNI ADD completely');
    }
  }

  #delete(task: CniTask, { signal }: CniCallOptions): Promise<void> {
    return this.#inTurn(task, signal, async () => {
      const entry = await this.#readEntry(task);
      const isComplete = entry?.result !== undefined;
      const isThere = entry !== undefined && (isComplete || hasNetns(entry.attachment));
      if (isThere) await this.#deleteStrictly(entry, signal);
      else await this.#deleteLeniently(entry ?? task, signal);
      await this.#cache.remove(task);
    });
  }

  /** @throws CniError of the first plugin that fails */
  async #deleteStrictly(entry: CacheEntry, signal: AbortSignal): Promise<void> {
    try {
      await this.#cache.write({ ...entry, deleting: true });
    } catch (err) {
      // A full disk must not keep a pod from terminating.
      this.#options.logger.warn({ err }, 'cannot record that a CNI attachment is being deleted');
    }
    await this.#teardown.deleteAll(entry, signal);
  }

  /** @throws CniError of a plugin that may succeed when it is called again */
  async #deleteLeniently(entry: CacheEntry, signal: AbortSignal): Promise<void> {
    const { containerId, ifName, network } = entry.attachment;
    const problems = await this.#teardown.deleteWhatCan(entry, network.plugins, signal);
    for (const err of problems) {
      if (!(err instanceof CniError) || err.retriable) throw err;
      const fields = { err, network: network.name, containerId, ifName };
      this.#options.logger.warn(fields, 'CNI DEL failed; probably there was nothing to delete');
    }
  }

  /**
   * Reads an entry. An unusable file must not keep its attachment from being deleted or recreated.
   * @param instead returned for such a file
   */
  async #readEntry(task: CniTask, instead?: CacheEntry): Promise<CacheEntry | undefined> {
    try {
      return await this.#cache.read(task);
    } catch (err) {
      this.#options.logger.warn({ err }, 'cannot read a cached CNI attachment');
      return instead;
    }
  }

  /** Runs operations on one interface one after the other. */
  async #inTurn<T>(task: CniTask, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    const { containerId, ifName } = task.attachment;
    const takeTurn = async () => {
      using _ = await this.#turns.acquire(`${containerId}/${ifName}`, signal).catch((cause) => {
        throw tooLate(task, cause);
      });
      return await work();
    };
    const turn = takeTurn();
    const running = failuresOf([turn]).finally(() => this.#running.delete(running));
    this.#running.add(running);
    return await turn;
  }
}

function tooLate({ attachment }: CniTask, cause: unknown): CniError {
  const message = `the deadline passed before work on ${describeAttachment(attachment)} could start`;
  const hint = 'another operation on this interface was still under way';
  return new CniError('cni-timeout', message, { cause, network: attachment.network.name, retriable: true, hint });
}

function assertNetnsPath({ attachment: { network, netnsPath } }: CniTask): void {
  if (netnsPath !== '') return;
  const message = `cannot attach to CNI network ${network.name}: there is no network namespace`;
  throw new CniError('cni-attachment-invalid', message, { network: network.name });
}

function subjectOf({ attachment: { network } }: CniTask, plugin: CniPluginConfig) {
  return { command: 'ADD' as const, plugin: plugin.type, network: network.name, cniVersion: network.cniVersion };
}

function decode(task: CniTask, raw: RawCniResult): CniResult {
  return decodeCniResult(raw, subjectOf(task, task.attachment.network.plugins.at(-1)!));
}
