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

/** A claim's configuration, with the additions of an IPAM plugin, whose routes may have more fields, and of the host. */
export type LinkConfig = Omit<VfConfig, 'routes'> & { routes?: RouteSpec[]; hostConfig?: HostConfig };

/** Converts a route: the kernel calls the metric a priority. */
export function toNewRoute({ metric: priority, ...route }: RouteConfig): RouteSpec {
  return { ...route, priority };
}

/**
 * Applies the claim's settings, except those that an earlier attempt has already applied. Kernel settings come before
 * addresses and before the link is up: some take effect only then, such as `disable_ipv6`, `accept_dad`, `arp_notify`.
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
    // Only if it differs: a VF whose PF has set the address may not set it itself.
    ...(macAddress === undefined || macAddress.toLowerCase() === link.hardwareAddress
      ? {}
      : { hardwareAddress: macAddress }),
    ...(mtu === undefined ? {} : { mtuBytes: mtu }),
    ...(Object.keys(flags).length > 0 && { flags }),
  };
  if (Object.keys(change).length > 0) await pod.setLink(link.index, change);
  // In a separate request: the kernel does not say which part of a request it refuses.
  if (offloadLimits !== undefined) await pod.setLink(link.index, { offloadLimits: defined(offloadLimits) });
  const all = [...addresses, ...(hostConfig === undefined ? [] : addressesOf(hostConfig))];
  const detection = duplicateDetection(await writeSettings(namespace, link, { ...config, addresses: all }));
  // All are sent at once, and executed in this order.
  await Promise.all([
    ...addresses.map((cidr) =>
      unlessThere(pod.addAddress(link.index, cidr, cidr.includes(':') ? detection : undefined), async () => true),
    ),
    pod.setLink(link.index, { up: true }),
  ]);
  if (hostConfig !== undefined) await setHostConfig(pod, link.index, hostConfig);
  for (const each of routes.toSorted((one, other) => Number(isByGateway(one)) - Number(isByGateway(other)))) {
    const route = { ...each, index: link.index };
    // EEXIST also means that another interface has such a route, usually the default route: then ours was not added.
    const isThere = async () => (await pod.findRoutes(link.index, [route])).found[0] !== undefined;
    await unlessThere(pod.addRoute(route), isThere);
  }
  for (const rule of rules) await unlessThere(pod.addEntry(ruleTable, link.index, rule), async () => true);
  for (const neighbor of neighbors) await pod.addEntry(neighborTable, link.index, neighbor);
}

/**
 * Writes the kernel settings of an interface.
 * @returns settings that the kernel lacks
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
 * Returns whether a route has a gateway. The kernel refuses a gateway that it does not reach yet, so that destinations on
 * the link come first.
 */
function isByGateway({ gateway, nextHops }: RouteSpec): boolean {
  return gateway !== undefined || nextHops !== undefined;
}
