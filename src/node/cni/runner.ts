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
  /** Absolute paths of the directories that are searched for plugins, in order. */
  binDirs: string[];
  /** Directory in which attachments are stored. It must belong to this driver alone, and survive a reboot of the node. */
  cacheDir: string;
  clock: Clock;
  logger: Logger;
  /** Function that runs programs. Default: {@link createExec}. */
  exec?: Exec;
  /** `PATH` of plugins, which call programs such as `iptables`. */
  searchPath?: string;
  /** Time limit for undoing a failed ADD, ms. */
  undoTimeoutMs?: number;
}

/** Options of an operation. The signal ends it: a running plugin is killed. */
interface CniCallOptions {
  signal: AbortSignal;
}

const defaultSearchPath = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/**
 * Attaches pods to networks by CNI plugins, and gets addresses from IPAM plugins.
 *
 * Every attachment is in the cache on disk before its first plugin runs and until its last DEL has succeeded. So an abandoned
 * attachment can be found (`cachedAttachments`) and deleted. Operations on one interface of a container run one at a time.
 * The command GC is not used: it would also delete attachments of other runtimes in a network with the same name, which
 * netdra does not know. Instead, the cached attachments of deleted pods are deleted.
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
   * Runs the ADD of the chain. If an identical ADD of the same network, container and interface was completed before, returns
   * its result and runs no plugin; otherwise deletes the earlier attachment first.
   *
   * A failed ADD is undone. If undoing fails, too, the attachment stays in the cache. The promise rejects only after undoing
   * has ended, even if the signal fires: until then, nothing else may use the interface, in any process.
   * @throws CniError
   */
  async add(attachment: CniAttachment, options: CniCallOptions): Promise<CniResult> {
    return await this.#add(chainTask(attachment), options);
  }

  /**
   * Runs the DEL of the chain, in reverse order, with the configuration of its ADD. Can be repeated, even when the namespace
   * no longer exists.
   *
   * Some plugins fail if they cannot find what they should delete. If there may be nothing to delete, errors are therefore
   * only logged, except for transient ones. This applies to an attachment that is not in the cache (plugins are called
   * anyway, since caches get lost), and to an attachment whose ADD was not completed and whose namespace no longer exists.
   * @throws CniError of the first plugin that fails. The plugins before it in the chain are then not called, since their
   * devices may still be in use, and the attachment stays in the cache
   */
  async delete(attachment: CniAttachment, options: CniCallOptions): Promise<void> {
    await this.#delete(chainTask(attachment), options);
  }

  /**
   * Runs the DEL of the chain if its ADD was begun and the interface has been lost since: the next ADD then runs the plugins
   * again. Plugins may fail if they cannot find what they should delete, so errors are only logged, except for transient
   * ones.
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
   * Gets addresses for an interface, without configuring them. Works like {@link add}.
   * @throws CniError
   */
  async ipamAdd(attachment: CniIpamAttachment, options: CniCallOptions): Promise<CniResult> {
    return await this.#add(ipamTask(attachment), options);
  }

  /**
   * Releases addresses. Works like {@link delete}.
   * @throws CniError
   */
  async ipamDelete(attachment: CniIpamAttachment, options: CniCallOptions): Promise<void> {
    await this.#delete(ipamTask(attachment), options);
  }

  /**
   * Returns the attachments that were begun and not deleted since, for cleaning up after deleted pods: see {@link
   * deleteCached}. `problems` are the errors of invalid files.
   * @throws CniError `cni-cache-unusable` if the cache as a whole cannot be read
   */
  async cachedAttachments(): Promise<{ attachments: CniTask[]; problems: CniError[] }> {
    const { entries, problems } = await this.#cache.list();
    return { attachments: entries.map(({ kind, attachment }) => ({ kind, attachment })), problems };
  }

  /** Deletes a cached attachment. @throws CniError as {@link delete} does */
  async deleteCached({ kind, attachment }: CniTask, options: CniCallOptions): Promise<void> {
    await this.#delete({ ...chainTask(attachment), kind }, options);
  }

  /**
   * Releases only the addresses of a cached attachment. Its device belongs to another claim by now, and a DEL of the plugins
   * would change it.
   * @throws CniError of the first IPAM plugin that fails
   */
  async releaseCached({ attachment }: CniTask, { signal }: CniCallOptions): Promise<void> {
    const task = chainTask(attachment);
    await this.#inTurn(task, signal, async () => {
      await this.#teardown.releaseAddresses(task, signal);
      await this.#cache.remove(task);
    });
  }

  /** Waits until all running operations have ended. */
  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#running);
  }

  #add(task: CniTask, { signal }: CniCallOptions): Promise<CniResult> {
    assertNetnsPath(task);
    return this.#inTurn(task, signal, async () => {
      const known = await this.#clearEarlier(task, signal);
      if (known !== undefined) return known;
      // Missing plugins are found first, while nothing must be undone yet.
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

  /** Runs the ADD of each plugin. @param called receives the plugins that were called, including one that fails */
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

  /** Returns the result of an identical earlier ADD. Deletes an earlier attachment that differs or is incomplete. */
  async #clearEarlier(task: CniTask, signal: AbortSignal): Promise<CniResult | undefined> {
    // If the entry is unreadable, its ADD may have been completed: without a DEL, its address would never be free again.
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

  /** Deletes an attachment that exists. @throws CniError of the first plugin that fails */
  async #deleteStrictly(entry: CacheEntry, signal: AbortSignal): Promise<void> {
    try {
      await this.#cache.write({ ...entry, deleting: true });
    } catch (err) {
      // A full disk must not keep a pod from terminating.
      this.#options.logger.warn({ err }, 'cannot record that a CNI attachment is being deleted');
    }
    await this.#teardown.deleteAll(entry, signal);
  }

  /** Deletes an attachment that may not exist. @throws CniError of a plugin that may succeed when it is called again */
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
   * Reads an entry. An invalid file must not keep its attachment from being deleted or created again.
   * @param instead entry to return for an invalid file
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
