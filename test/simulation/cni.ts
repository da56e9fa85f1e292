import { isDeepStrictEqual } from 'node:util';
import type { CniPlugins } from '../../src/driver/vf/cni-attacher.ts';
import {
  type CachedAttachment,
  type CniAttachment,
  CniError,
  type CniIpamAttachment,
  type CniResult,
} from '../../src/node/cni/index.ts';
import type { Hardware } from './hardware.ts';
import type { Kernel } from './kernel.ts';
import type { Process, Simulator } from './simulator.ts';

interface Entry {
  cached: CachedAttachment;
  isComplete: boolean;
  address: string | undefined;
  routes: CniResult['routes'];
}

export interface CniNodeOptions {
  simulator: Simulator;
  kernel: Kernel;
  hardware: Hardware;
}

/** CNI plugins of the node with their state: leases, and the cache of their callers. */
export class CniNode {
  readonly entries = new Map<string, Entry>();
  readonly options: CniNodeOptions;
  #nextAddress = 2;
  failureRate = 0;
  hangRate = 0;
  /** Until then every plugin takes seconds. */
  slowUntilMs = 0;
  /** The longest that a plugin has taken, or is about to take. */
  longestMs = 0;
  /** Called when a DEL has other arguments than its ADD. */
  onOther: (message: string) => void = () => undefined;
  /** A plugin has ended well. */
  onDone: (tookMs: number, sandboxId: string, process: Process) => void = () => undefined;

  constructor(options: CniNodeOptions) {
    this.options = options;
  }

  get addresses(): string[] {
    return [...this.entries.values()].flatMap(({ address }) => address ?? []);
  }

  lease(): string {
    return `10.9.${Math.floor(this.#nextAddress / 250)}.${(this.#nextAddress++ % 250) + 1}/16`;
  }

  /**
   * The routes that an IPAM plugin is configured with, mostly none. Each to a destination of its own: the kernel refuses the route of a
   * second interface to the same one (EEXIST), and the driver reports that without an end.
   */
  drawRoutes(address: string): CniResult['routes'] {
    const { tape } = this.options.simulator;
    if (!tape.chance(0.2, 'route')) return [];
    const dst = address.replace(/^10\.9\.(.*)\/16$/, '198.18.$1/32');
    return [tape.chance(0.5, 'route') ? { dst, gw: '10.9.0.1' } : { dst, scope: 253 }];
  }

  plugins(process: Process): CniPlugins & CniCache {
    return new Plugins(this, process);
  }
}

interface CniCache {
  cachedAttachments(): Promise<{ attachments: CachedAttachment[]; problems: CniError[] }>;
  deleteCached(cached: CachedAttachment, options: { signal: AbortSignal }): Promise<void>;
  releaseCached(cached: CachedAttachment, options: { signal: AbortSignal }): Promise<void>;
}

/** The driver's CNI runner as seen from outside: a plugin is slow, fails, or hangs until it is killed. */
class Plugins implements CniPlugins, CniCache {
  readonly #node: CniNode;
  readonly #process: Process;

  constructor(node: CniNode, process: Process) {
    this.#node = node;
    this.#process = process;
  }

  async add(attachment: CniAttachment, { signal }: { signal: AbortSignal }): Promise<CniResult> {
    const key = keyOf('chain', attachment);
    const known = this.#node.entries.get(key);
    if (known?.isComplete === true) return resultOf(known);
    const entry = { cached: { kind: 'chain' as const, attachment }, isComplete: false, address: undefined, routes: [] };
    await this.#run(`CNI ADD ${attachment.ifName}`, signal, () => void this.#node.entries.set(key, entry));
    await this.#run(
      'CNI ADD moves the VF',
      signal,
      () => {
        const [{ isBroken } = {}] = attachment.network.plugins as { isBroken?: boolean }[];
        if (isBroken) throw pluginFailed('ADD');
        this.#attach(attachment);
      },
      attachment,
    );
    entry.isComplete = true;
    return resultOf(entry);
  }

  async delete(attachment: CniAttachment, { signal }: { signal: AbortSignal }): Promise<void> {
    this.#compare('chain', attachment);
    await this.#run(`CNI DEL ${attachment.ifName}`, signal, () => this.#detach(attachment));
    this.#process.point('CNI cache');
    this.#node.entries.delete(keyOf('chain', attachment));
  }

  async deleteLost(attachment: CniAttachment, options: { signal: AbortSignal }): Promise<void> {
    if (this.#node.entries.has(keyOf('chain', attachment))) await this.delete(attachment, options);
  }

  async ipamAdd(attachment: CniIpamAttachment, { signal }: { signal: AbortSignal }): Promise<CniResult> {
    const task = chainOf(attachment);
    const key = keyOf('ipam', task);
    const known = this.#node.entries.get(key);
    if (known?.isComplete === true) return resultOf(known);
    const cached = { kind: 'ipam' as const, attachment: task };
    const entry: Entry = { cached, isComplete: false, address: undefined, routes: [] };
    await this.#run(
      'IPAM ADD',
      signal,
      () => {
        entry.address = this.#node.lease();
        entry.routes = this.#node.drawRoutes(entry.address);
        this.#node.entries.set(key, entry);
        this.#node.options.simulator.trace('IPAM', `leases ${entry.address} to ${attachment.containerId}`);
      },
      attachment,
    );
    entry.isComplete = true;
    return resultOf(entry);
  }

  async ipamDelete(attachment: CniIpamAttachment, { signal }: { signal: AbortSignal }): Promise<void> {
    this.#compare('ipam', chainOf(attachment));
    await this.#run('IPAM DEL', signal, () => void this.#node.entries.delete(keyOf('ipam', chainOf(attachment))));
  }

  async cachedAttachments() {
    this.#process.point('list CNI cache');
    return { attachments: [...this.#node.entries.values()].map(({ cached }) => cached), problems: [] };
  }

  async deleteCached(cached: CachedAttachment, { signal }: { signal: AbortSignal }): Promise<void> {
    await this.#run('CNI DEL of the cache', signal, () => {
      if (cached.kind === 'chain') this.#detach(cached.attachment);
      this.#node.entries.delete(keyOf(cached.kind, cached.attachment));
    });
  }

  async releaseCached({ kind, attachment }: CachedAttachment, { signal }: { signal: AbortSignal }): Promise<void> {
    await this.#run('IPAM DEL of the cache', signal, () => void this.#node.entries.delete(keyOf(kind, attachment)));
  }

  /** Plugins find what they have to undo by all that they get: a DEL repeats its ADD. */
  #compare(kind: string, attachment: CniAttachment): void {
    const added = this.#node.entries.get(keyOf(kind, attachment))?.cached.attachment;
    if (added === undefined || isDeepStrictEqual(added, attachment)) return;
    this.#node.onOther(
      `CNI DEL of ${attachment.ifName} is for ${JSON.stringify(attachment)}, not ${JSON.stringify(added)}`,
    );
  }

  #attach({ deviceId = '', netnsPath, ifName, network }: CniAttachment): void {
    const { kernel, hardware } = this.#node.options;
    const target = kernel.mounts.get(netnsPath);
    const vf = hardware.find(deviceId);
    if (target === undefined || target === 'plain file' || vf?.link === undefined) throw pluginFailed('ADD');
    if (vf.link.namespace !== target && !vf.link.namespace.isHost) throw pluginFailed('ADD');
    // Like sriov-cni, through the PF.
    const [{ vlan } = {}] = network.plugins as { vlan?: number }[];
    if (vlan !== undefined) vf.settings.vlan = { id: vlan, priority: 0 };
    const { namespace } = vf.link;
    kernel.change(namespace, vf.link.index, { up: false }, undefined, 'CNI plugin');
    if (namespace !== target) kernel.change(namespace, vf.link.index, { name: ifName }, target, 'CNI plugin');
    kernel.change(target, vf.link.index, { up: true }, undefined, 'CNI plugin');
  }

  /** Without a namespace it finds nothing, and its settings on the PF remain. */
  #detach({ deviceId = '', netnsPath }: CniAttachment): void {
    const { kernel, hardware } = this.#node.options;
    const namespace = kernel.mounts.get(netnsPath);
    const vf = hardware.find(deviceId);
    if (namespace === undefined || namespace === 'plain file' || vf?.link?.namespace !== namespace) return;
    vf.settings.vlan = undefined;
    kernel.change(namespace, vf.link.index, { up: false }, undefined, 'CNI plugin');
    const name = kernel.host.byName(vf.fresh.name) === undefined ? vf.fresh.name : vf.link.name;
    if (kernel.host.byName(name) !== undefined) throw pluginFailed('DEL');
    kernel.change(namespace, vf.link.index, { name }, kernel.host, 'CNI plugin');
  }

  /** Some failures occur after the plugin has done its work. */
  /** @param attachment absent: for no sandbox that waits */
  async #run(
    what: string,
    signal: AbortSignal,
    effect: () => void,
    attachment?: Pick<CniAttachment, 'containerId'>,
  ): Promise<void> {
    const { simulator } = this.#node.options;
    const { tape } = simulator;
    signal.throwIfAborted();
    const outcome = tape.weighted<'ok' | 'fails' | 'fails late' | 'hangs'>(
      [
        [1 - this.#node.failureRate - this.#node.hangRate, 'ok'],
        [this.#node.failureRate / 2, 'fails'],
        [this.#node.failureRate / 2, 'fails late'],
        [this.#node.hangRate, 'hangs'],
      ],
      'cni',
    );
    simulator.trace(this.#process.name, `${what}${outcome === 'ok' ? '' : `, which ${outcome}`}`);
    const isSlow = simulator.nowMs < this.#node.slowUntilMs;
    const usualMs = isSlow ? 1_000 + 7_000 * tape.fraction('slow') : tape.delay(30, 6_000);
    const delayMs = outcome === 'hangs' ? 600_000 : usualMs;
    this.#node.longestMs = Math.max(this.#node.longestMs, delayMs);
    await this.#process.clock.sleep(delayMs, signal).catch((cause: unknown) => {
      throw new CniError('cni-timeout', `${what} was killed`, { retriable: true, cause });
    });
    this.#process.point(what);
    if (outcome === 'fails') throw pluginFailed(what);
    effect();
    if (outcome === 'fails late') throw pluginFailed(what);
    if (attachment !== undefined) this.#node.onDone(delayMs, attachment.containerId, this.#process);
  }
}

function pluginFailed(what: string): CniError {
  return new CniError('cni-plugin-failed', `${what} failed`, { retriable: true });
}

function chainOf({ ipam, ...rest }: CniIpamAttachment): CniAttachment {
  return { ...rest, network: { cniVersion: ipam.cniVersion, name: ipam.name, plugins: [{ type: 'ipam' }] } };
}

function keyOf(kind: string, { network, containerId, ifName }: CniAttachment): string {
  return `${kind} ${network.name} ${containerId} ${ifName}`;
}

function resultOf({ address, routes }: Entry): CniResult {
  return {
    cniVersion: '1.0.0',
    ips: address === undefined ? [] : [{ address }],
    routes,
    unused: [],
  };
}
