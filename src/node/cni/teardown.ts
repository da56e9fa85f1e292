import type { Logger } from '../../lib/logger.ts';
import { NetlinkError, NetnsHandle } from '../netlink/index.ts';
import type { CniAttachment, CniTask } from './attachment.ts';
import type { CacheEntry } from './cache.ts';
import type { PluginCall, PluginCaller } from './call.ts';
import { CniError, unknownContainerCode } from './errors.ts';
import type { CniPluginConfig } from './network.ts';
import type { RawCniResult } from './result.ts';
import { isAtLeast } from './versions.ts';

/** Runs the DEL of plugins, in reverse order of the chain. */
export class Teardown {
  readonly #caller: PluginCaller;
  readonly #logger: Logger;

  constructor(caller: PluginCaller, logger: Logger) {
    this.#caller = caller;
    this.#logger = logger;
  }

  /**
   * Runs the DEL of all plugins. Stops at the first plugin that fails, which may still use what an earlier plugin of the
   * chain has created.
   * @throws CniError
   */
  async deleteAll(entry: CacheEntry, signal: AbortSignal): Promise<void> {
    for (const plugin of entry.attachment.network.plugins.toReversed()) await this.#deletePlugin(entry, plugin, signal);
  }

  /**
   * Runs the DEL of all plugins, even after failures.
   * @param plugins plugins in the order of the chain
   * @returns the errors
   */
  async deleteWhatCan(entry: CacheEntry, plugins: CniPluginConfig[], signal: AbortSignal): Promise<unknown[]> {
    const problems: unknown[] = [];
    for (const plugin of plugins.toReversed()) {
      try {
        await this.#deletePlugin(entry, plugin, signal);
      } catch (error) {
        problems.push(error);
      }
    }
    return problems;
  }

  async #deletePlugin(
    { kind, attachment, result }: CacheEntry,
    plugin: CniPluginConfig,
    signal: AbortSignal,
  ): Promise<void> {
    // CNI 0.4.0 introduced the result of the ADD in DEL. Without it, some plugins delete nothing.
    const prevResult = isAtLeast(attachment.network.cniVersion, '0.4.0') ? result : undefined;
    const call = deletionOf(plugin, attachment, prevResult);
    const hadNetns = hasNetns(attachment);
    try {
      await this.#call({ ...call, netnsPath: hadNetns ? attachment.netnsPath : '' }, signal);
    } catch (error) {
      // The namespace may have disappeared while the plugin was working in it.
      if (!hadNetns || signal.aborted || hasNetns(attachment)) throw error;
      await this.#call(call, signal);
    }
    if (kind === 'chain' && !hasNetns(attachment)) await this.#releaseAddresses(call, signal);
  }

  /**
   * Releases the addresses of an attachment without running any other plugin. @throws CniError of the first plugin that fails
   */
  async releaseAddresses({ attachment }: CniTask, signal: AbortSignal): Promise<void> {
    for (const plugin of attachment.network.plugins.toReversed()) {
      await this.#releaseAddresses(deletionOf(plugin, attachment), signal);
    }
  }

  /**
   * Releases addresses by calling the IPAM plugin itself. Some plugins, such as host-device, do nothing without a namespace,
   * so the network would lose their addresses for good. Releasing an address twice does no harm.
   */
  async #releaseAddresses(call: PluginCall, signal: AbortSignal) {
    const { plugin } = call;
    const type = plugin.ipam?.type;
    if (!type) return;
    try {
      await this.#call({ ...call, plugin: { ...plugin, type } }, signal);
    } catch (error) {
      // The type is then not a plugin but a keyword of the attaching plugin.
      if (!(error instanceof CniError && error.code === 'cni-plugin-missing' && !error.retriable)) throw error;
    }
  }

  async #call(call: PluginCall, signal: AbortSignal): Promise<void> {
    try {
      await this.#caller.call(call, signal);
    } catch (error) {
      if (!(error instanceof CniError && error.pluginCode === unknownContainerCode)) throw error;
      this.#logger.debug({ err: error }, 'CNI DEL found nothing to delete');
    }
  }
}

/** Returns the plugin call of a CNI DEL whose network namespace is gone: its `CNI_NETNS` is empty. */
function deletionOf(plugin: CniPluginConfig, attachment: CniAttachment, prevResult?: RawCniResult) {
  return { command: 'DEL' as const, plugin, attachment, netnsPath: '', prevResult };
}

/** Returns whether the namespace exists; `true` also if that cannot be determined. */
export function hasNetns({ netnsPath }: CniAttachment): boolean {
  try {
    using netns = netnsPath === '' ? undefined : NetnsHandle.openIfThere(netnsPath);
    return netns !== undefined;
  } catch (error) {
    if (error instanceof NetlinkError) return true;
    throw error;
  }
}
