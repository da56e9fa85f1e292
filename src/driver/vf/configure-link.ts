import { defined } from '../../lib/defined.ts';
import {
  addressesOf,
  type HostConfig,
  type Link,
  neighborTable,
  type RouteSpec,
  ruleTable,
  setHostConfig,
  unlessThere,
} from '../../node/netlink/index.ts';
import type { RouteConfig, VfConfig } from '../model/index.ts';
import { duplicateDetection, interfaceSettings, type SettingsConfig } from './interface-settings.ts';
import type { NetworkNamespace } from './networks.ts';

/** Configuration of a claim, with the additions of an IPAM plugin (whose routes may have more fields) and of the host. */
export type LinkConfig = Omit<VfConfig, 'routes'> & { routes?: RouteSpec[]; hostConfig?: HostConfig };

/** Converts a route to the kernel's terms, in which the metric is the priority. */
export function toNewRoute({ metric: priority, ...route }: RouteConfig): RouteSpec {
  return { ...route, priority };
}

/**
 * Applies the claim's settings to a link, except for those that are already in effect. Sysctls are written before addresses
 * are added and before the link is up: some take effect only then, such as `disable_ipv6`, `accept_dad` and `arp_notify`.
 */
export async function configureLink(
  namespace: Pick<NetworkNamespace, 'connection' | 'writeSysctls'>,
  link: Link,
  config: LinkConfig,
): Promise<void> {
  const {
    macAddress,
    mtu,
    addresses = [],
    routes = [],
    rules = [],
    neighbors = [],
    allMulticast,
    promiscuous,
    offloadLimits,
    hostConfig,
  } = config;
  const pod = namespace.connection;
  const flags = defined({ allMulticast, promiscuous });
  const change = {
    // Only a different address is set: a VF whose PF has set the address may not set it itself.
    ...(macAddress === undefined || macAddress.toLowerCase() === link.hardwareAddress
      ? {}
      : { hardwareAddress: macAddress }),
    ...(mtu === undefined ? {} : { mtuBytes: mtu }),
    ...(Object.keys(flags).length > 0 && { flags }),
  };
  if (Object.keys(change).length > 0) await pod.setLink(link.index, change);
  // The limits are set in a separate request, since the kernel does not say which part of a request it refuses.
  if (offloadLimits !== undefined) await pod.setLink(link.index, { offloadLimits: defined(offloadLimits) });
  const all = [...addresses, ...(hostConfig === undefined ? [] : addressesOf(hostConfig))];
  const detection = duplicateDetection(await writeSettings(namespace, link, { ...config, addresses: all }));
  // All requests are sent at once, and executed in this order.
  await Promise.all([
    ...addresses.map((cidr) =>
      unlessThere(pod.addAddress(link.index, cidr, cidr.includes(':') ? detection : undefined), async () => true),
    ),
    pod.setLink(link.index, { up: true }),
  ]);
  if (hostConfig !== undefined) await setHostConfig(pod, link.index, hostConfig);
  for (const each of routes.toSorted((one, other) => Number(isByGateway(one)) - Number(isByGateway(other)))) {
    const route = { ...each, index: link.index };
    // EEXIST can also mean that another interface has such a route, usually the default route: this one was then not added.
    const isThere = async () => (await pod.findRoutes(link.index, [route])).found[0] !== undefined;
    await unlessThere(pod.addRoute(route), isThere);
  }
  for (const rule of rules) await unlessThere(pod.addEntry(ruleTable, link.index, rule), async () => true);
  for (const neighbor of neighbors) await pod.addEntry(neighborTable, link.index, neighbor);
}

/**
 * Writes the sysctls of an interface.
 * @returns keys that the kernel lacks
 */
export async function writeSettings(
  namespace: Pick<NetworkNamespace, 'writeSysctls'>,
  { name }: Link,
  config: SettingsConfig,
): Promise<string[]> {
  const { needed, asked } = interfaceSettings(config);
  const skipped = await namespace.writeSysctls(name, needed, { skipMissing: true });
  if (Object.keys(asked).length > 0) await namespace.writeSysctls(name, asked);
  return skipped;
}

/**
 * Returns whether a route has a gateway. Such routes are added last, since the kernel refuses a gateway that it cannot reach
 * yet.
 */
function isByGateway({ gateway, nextHops }: RouteSpec): boolean {
  return gateway !== undefined || nextHops !== undefined;
}
