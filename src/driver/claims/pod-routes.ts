import type { AllocatedClaim } from '../../framework/kubeletplugin/index.ts';
import { claimName, isSameDevice } from '../../framework/metadata/index.ts';
import { quickCanonicalAddress, routeKey } from '../../node/netlink/index.ts';
import { type ClaimDevices, groupOf, invalidConfig, type RouteConfig, type StoredDevice } from '../model/index.ts';

/** A route of an interface. */
interface HeldRoute {
  route: RouteConfig;
  device: StoredDevice;
  /** Owner of the interface in messages. */
  owner: string;
}

/**
 * Checks that no two interfaces of a pod have a route with the same destination, table and metric: the kernel would refuse
 * the second route at each attempt.
 * @param others the other claims of the claim's pods
 * @throws DriverError `config-invalid` with both routes
 */
export function checkPodRoutes(
  claim: AllocatedClaim,
  devices: readonly StoredDevice[],
  others: readonly ClaimDevices[],
): void {
  if (devices.every(({ config: { routes = [] } }) => routes.length === 0)) return;
  const canonical = canonicalDestinations();
  const keyOf = ({ destination, table, metric: priority }: RouteConfig) =>
    routeKey(canonical(destination), { table, priority });
  const held = new Map<string, HeldRoute>();
  for (const { identity, devices: itsDevices } of others) {
    for (const device of itsDevices) {
      const owner = `${device.name} of claim ${claimName(identity)}`;
      for (const route of device.config.routes ?? []) held.set(keyOf(route), { route, device, owner });
    }
  }
  for (const device of devices) {
    for (const route of device.config.routes ?? []) {
      const key = keyOf(route);
      const other = held.get(key);
      if (other === undefined) held.set(key, { route, device, owner: device.name });
      else if (!areOneInterface(device, other.device)) {
        const problem = `routes: device ${device.name} cannot have a route to ${route.destination} ${by(route)}, which ${other.owner} has ${by(other.route)}`;
        throw invalidConfig(claim, [problem]);
      }
    }
  }
}

/** Returns whether both are one device, or members of one bond, which has the routes. Bond names are unique in a pod. */
function areOneInterface(one: StoredDevice, other: StoredDevice): boolean {
  if (isSameDevice(one, other)) return true;
  return groupOf(one) !== undefined && groupOf(one) === groupOf(other);
}

function by({ gateway, nextHops = [] }: RouteConfig): string {
  const gateways = gateway === undefined ? nextHops.map((each) => each.gateway) : [gateway];
  return gateways.length === 0 ? 'on its link' : `by ${gateways.join(' and ')}`;
}

/**
 * Returns a function that makes destinations canonical. It has a cache, since all devices of a request have the same routes.
 */
function canonicalDestinations(): (destination: string) => string {
  const known = new Map<string, string>();
  return (destination) => {
    const found = known.get(destination);
    if (found !== undefined) return found;
    const [address = '', prefixLength] = destination.split('/');
    const text = `${quickCanonicalAddress(address)}/${prefixLength}`;
    known.set(destination, text);
    return text;
  };
}
