import type { Clock } from '../../lib/clock.ts';
import { defined } from '../../lib/defined.ts';
import type { Logger } from '../../lib/logger.ts';
import { type CniResult, type CniRoute, type CniRunner, parseCniIpam, parseCniNetwork } from '../../node/cni/index.ts';
import { maxInterfaceNameBytes, type RouteSpec, scopeLink } from '../../node/netlink/index.ts';
import { groupOf, isUserSpace, type SandboxPlace, type StoredDevice } from '../model/index.ts';

/** Time limit for a DEL, ms. The kubelet waits 45 s for unprepare, which may also wait for a stop of the sandbox. */
const removeBudgetMs = 10_000;

/** Addresses and routes for a VF that netdra configures itself. */
export interface IpamResult {
  addresses: string[];
  routes: RouteSpec[];
}

/** Part of the CNI runner that attaching uses. */
export type CniPlugins = Pick<CniRunner, 'add' | 'delete' | 'deleteLost' | 'ipamAdd' | 'ipamDelete'>;

export interface CniAttacherOptions {
  runner: CniPlugins;
  clock: Clock;
  logger: Logger;
}

/** CNI's part in attaching VFs: the whole attachment (`attach: cni`), or the addresses (`ipam`). */
export class CniAttacher {
  readonly #options: CniAttacherOptions;

  constructor(options: CniAttacherOptions) {
    this.#options = options;
  }

  /** Makes the claim's plugins attach the VF. @throws CniError */
  async add(device: StoredDevice, place: SandboxPlace, signal: AbortSignal): Promise<CniResult> {
    return await this.#options.runner.add(chainOf(device, place), { signal });
  }

  /** Releases the plugins' resources of a VF that has left the pod, so that they can attach it again. @throws CniError */
  async removeLost(device: StoredDevice, place: SandboxPlace, signal: AbortSignal): Promise<void> {
    await this.#options.runner.deleteLost(chainOf(device, place), { signal });
  }

  /** Gets addresses and routes from the claim's IPAM plugin, if it names one. @throws CniError */
  async addresses(device: StoredDevice, place: SandboxPlace, signal: AbortSignal): Promise<IpamResult> {
    if (device.config.ipam === undefined) return { addresses: [], routes: [] };
    const result = await this.#options.runner.ipamAdd(ipamOf(device, place), { signal });
    const unused = isUserSpace(device) && result.routes.length > 0 ? ['routes', ...result.unused] : result.unused;
    if (unused.length > 0) {
      const fields = { device: device.name, sandbox: place.sandboxId, fields: unused };
      this.#options.logger.warn(fields, 'ignored fields of the IPAM result that netdra does not apply to a VF');
    }
    return {
      addresses: result.ips.map(({ address }) => address),
      routes: result.routes.map((each) => routeOf(each, result)),
    };
  }

  /**
   * Lets plugins release the resources of a VF in a sandbox. Only logs a failure, so that the VF is still detached: the
   * attachment stays in the runner's cache, and {@link CniCleanUp} repeats the DEL.
   */
  async remove(device: StoredDevice, place: SandboxPlace): Promise<void> {
    const { runner, clock, logger } = this.#options;
    const { attach, ipam } = device.config;
    using deadline = clock.deadline(removeBudgetMs);
    const { signal } = deadline;
    try {
      if (attach === 'cni') await runner.delete(chainOf(device, place), { signal });
      else if (ipam !== undefined) await runner.ipamDelete(ipamOf(device, place), { signal });
    } catch (error) {
      const fields = { device: device.name, sandbox: place.sandboxId, err: error };
      logger.warn(fields, 'CNI DEL failed; reconciliation repeats it');
    }
  }
}

function routeOf(
  { dst, gw, priority, table, scope, mtu, advmss }: CniRoute,
  { ips }: CniResult,
): IpamResult['routes'][number] {
  const isOnLink = scope !== undefined && scope >= scopeLink;
  // In CNI, a route without a gateway uses the gateway of an address of the same family.
  const ofAddress = ips.find(
    ({ address, gateway }) => gateway !== undefined && isIpv6(address) === isIpv6(dst),
  )?.gateway;
  const gateway = gw ?? (isOnLink ? undefined : ofAddress);
  return { destination: dst, ...defined({ gateway, priority, table, scope, mtuBytes: mtu, advMssBytes: advmss }) };
}

function chainOf(device: StoredDevice, place: SandboxPlace) {
  const network = parseCniNetwork(device.config.cni, `device ${device.name}`, { defaultName: 'netdra' });
  const { macAddress: mac } = device.config;
  const capabilities = mac === undefined ? {} : { capabilities: { mac } };
  return { ...interfaceOf(device, place), network, deviceId: device.pciAddress, ...capabilities };
}

function ipamOf(device: StoredDevice, place: SandboxPlace) {
  // All users of the same pool name share one network name, so that no address is assigned twice on this node.
  const ipam = parseCniIpam(device.config.ipam, `device ${device.name}`, { name: 'netdra' });
  return { ...interfaceOf(device, place), ipam };
}

/**
 * Returns the interface name for plugins, for an attached VF. IPAM plugins record addresses under this name, so it must
 * differ between the VFs of a pod even if the claim sets none; the plugin dhcp also finds the link by it. It stays the same
 * when the pod renames the link: a DEL needs the name of its ADD.
 */
export function cniInterfaceName(device: StoredDevice): string {
  const { config, name, attachment } = device;
  // Members of a bond share its addresses, which plugins assign once.
  const { interfaceName = attachment?.interfaceName } = config;
  return groupOf(device) ?? interfaceName ?? name.slice(-maxInterfaceNameBytes);
}

function interfaceOf(device: StoredDevice, place: SandboxPlace) {
  const { sandboxId, netnsPath, podUid, podNamespace, podName } = place;
  // These are the names that runtimes and Multus use; IPAM plugins such as whereabouts need all of them.
  const args = {
    IgnoreUnknown: '1',
    K8S_POD_NAMESPACE: podNamespace,
    K8S_POD_NAME: podName,
    K8S_POD_INFRA_CONTAINER_ID: sandboxId,
    K8S_POD_UID: podUid,
  };
  return { containerId: sandboxId, netnsPath, ifName: cniInterfaceName(device), args };
}

/**
 * Returns the key of the lock under which a repeated DEL may change a VF that no claim has. Prepare takes the lock once
 * between reserving the VF and reading it: a later DEL sees the claim.
 */
export function cniDeletionKey(pciAddress: string): string {
  return `cni/${pciAddress}`;
}

function isIpv6(address: string): boolean {
  return address.includes(':');
}
