import type { Clock } from '../../lib/clock.ts';
import { defined } from '../../lib/defined.ts';
import type { Logger } from '../../lib/logger.ts';
import { type CniResult, type CniRoute, type CniRunner, parseCniIpam, parseCniNetwork } from '../../node/cni/index.ts';
import { maxInterfaceNameBytes, type RouteSpec, scopeLink } from '../../node/netlink/index.ts';
import { groupOf, isUserSpace, type SandboxPlace, type StoredDevice } from '../model/index.ts';

/** Time limit for a DEL, ms. The kubelet waits 45 s for unprepare, which may wait for a stop of the sandbox. */
const removeBudgetMs = 10_000;

/** Addresses and routes for a VF that netdra configures itself. */
export interface IpamResult {
  addresses: string[];
  routes: RouteSpec[];
}

/** The subset of the runner that is used here. */
export type CniPlugins = Pick<CniRunner, 'add' | 'delete' | 'deleteLost' | 'ipamAdd' | 'ipamDelete'>;

export interface CniAttacherOptions {
  runner: CniPlugins;
  clock: Clock;
  logger: Logger;
}

/** CNI's part in attaching VFs: all of it (`attach: cni`), or the addresses (`ipam`). */
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
   * Makes plugins release the resources of a VF in a sandbox. A failure does not keep the VF from being detached: the
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
  // A CNI route without a gateway uses the gateway of an address of the same family.
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
  // One network for all users of the same pool name, so that no address is assigned twice on this node.
  const ipam = parseCniIpam(device.config.ipam, `device ${device.name}`, { name: 'netdra' });
  return { ...interfaceOf(device, place), ipam };
}

/**
 * Returns the interface name for plugins, for an attached VF. IPAM plugins record their addresses under it, so that it must
 * differ between the VFs of a pod, also where the claim leaves it open; dhcp also looks for the link by it. It stays the
 * same when the pod renames the link: a DEL needs the name of its ADD.
 */
export function cniInterfaceName(device: StoredDevice): string {
  const { config, name, attachment } = device;
  // The members of a bond share its addresses: they get them once.
  const { interfaceName = attachment?.interfaceName } = config;
  return groupOf(device) ?? interfaceName ?? name.slice(-maxInterfaceNameBytes);
}

function interfaceOf(device: StoredDevice, place: SandboxPlace) {
  const { sandboxId, netnsPath, podUid, podNamespace, podName } = place;
  // The names are those of runtimes and Multus; IPAM plugins such as whereabouts need all of them.
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
 * Returns the key of the lock under which a repeated DEL may change a VF that no claim has. Prepare takes it once between
 * reserving the VF and reading it: later ones see the claim.
 */
export function cniDeletionKey(pciAddress: string): string {
  return `cni/${pciAddress}`;
}

function isIpv6(address: string): boolean {
  return address.includes(':');
}
