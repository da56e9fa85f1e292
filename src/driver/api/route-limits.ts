import type { AllocatedClaim } from '../../framework/kubeletplugin/index.ts';
import { AddressFamily, type Cidr, formatCidr, isWithin, networkOf, parseCidr } from '../../node/netlink/index.ts';
import { type DriverError, refusal, type VfConfig } from '../model/index.ts';
import type { ClassLimits } from './class-config.ts';

/** A route that a claim adds to the pod: one of its `routes`, or the network of one of its addresses. */
interface AddedRoute {
  network: Cidr;
  destination: string;
  /** Address whose prefix makes the kernel add this route; absent for an entry of `routes`. */
  address?: string;
}

/**
 * Checks the routes of a claim, including those that the kernel adds for the networks of its addresses: otherwise the address
 * 192.0.2.1/1 would bypass the limits. Networks in `addressRanges` are not counted: the class allows addresses in them. Even
 * so, `addressRanges` never allows a default route: 0.0.0.0/0 in it only means any address.
 * @param limits limits of all configurations of the class
 * @throws DriverError `config-invalid` with the route, its address and the limit
 */
export function checkRoutes(
  claim: AllocatedClaim,
  { routes = [], addresses = [] }: VfConfig,
  limits: readonly ClassLimits[],
  nodeNetworks: readonly Cidr[],
): void {
  const ranges = limits.flatMap(({ addressRanges }) => (addressRanges === undefined ? [] : [addressRanges]));
  const isOnLink = ({ network }: AddedRoute) =>
    !isDefaultRoute(network) && ranges.length > 0 && ranges.every((each) => isInOne(network, each));
  const ofAddresses = addresses.flatMap(routeOf).filter((route) => !isOnLink(route));
  const added = [
    ...routes.map(({ destination }) => ({ network: parseCidr(destination), destination })),
    ...ofAddresses,
  ];
  checkDestinations(claim, added, limits, nodeNetworks);
  for (const { maxRoutes = Number.POSITIVE_INFINITY } of limits) {
    if (added.length <= maxRoutes) continue;
    const parts = ofAddresses.map(({ destination, address }) => `, including ${destination} of its address ${address}`);
    const what = `sets ${added.length} ${added.length === 1 ? 'route' : 'routes'}${parts.join('')}`;
    throw overLimit(claim, 'maxRoutes', what, `${maxRoutes}`, ofAddresses[0] && hintFor(ofAddresses[0]));
  }
}

function checkDestinations(
  claim: AllocatedClaim,
  added: readonly AddedRoute[],
  limits: readonly ClassLimits[],
  nodeNetworks: readonly Cidr[],
): void {
  const allowed = limits.flatMap(({ routes }) => (routes === undefined ? [] : [routes]));
  for (const route of added) {
    const outside = allowed.find((each) => !isInOne(route.network, each));
    if (outside !== undefined) {
      const { destination, address } = route;
      const what = address === undefined ? `routes to ${destination}` : `addresses to ${address}, ${adding(route)}`;
      throw overLimit(claim, 'routes', `sets ${what}`, outside.join(', '), address && hintFor(route));
    }
    if (allowed.length === 0) checkUnlimited(claim, route, nodeNetworks);
  }
}

/**
 * Checks a route for which the class has no `limits.routes`. Refuses default routes, large parts of them, and routes to the
 * node's networks.
 */
function checkUnlimited(claim: AllocatedClaim, route: AddedRoute, nodeNetworks: readonly Cidr[]): void {
  const { network, destination, address } = route;
  const refuse = (what: string) => {
    const asked = address === undefined ? `a route to ${destination}` : `the address ${address}, ${adding(route)}`;
    return refusal(claim, 'config-invalid', ` may not set ${asked}, ${what}`, { hint: hintFor(route) });
  };
  if (isDefaultRoute(network))
    throw refuse(network.prefixLength === 0 ? 'a default route' : 'a part of a default route');
  if (nodeNetworks.some((own) => isWithin(network, own) || isWithin(own, network))) {
    throw refuse('a network of the node');
  }
}

function hintFor({ network, address }: AddedRoute): string {
  if (address === undefined) return 'an administrator can allow it in limits.routes of the DeviceClass';
  const field = isDefaultRoute(network) ? 'limits.routes' : 'limits.addressRanges';
  return `use a longer prefix, or let an administrator list the network in ${field} of the DeviceClass`;
}

function adding({ destination }: AddedRoute): string {
  return `which adds a route to ${destination}`;
}

/**
 * Returns whether a route is a default route, or a large part of one: a few such routes together reach nearly everything. The
 * IPv6 limit of 7 lets `fc00::/7` pass, which contains the unique local addresses.
 */
export function isDefaultRoute({ family, prefixLength }: Cidr): boolean {
  return prefixLength < (family === AddressFamily.ipv4 ? 8 : 7);
}

/**
 * Returns whether a range contains the whole network.
 * @param ranges networks in CIDR notation
 */
export function isInOne(network: Cidr, ranges: readonly string[]): boolean {
  return ranges.some((range) => isWithin(network, parseCidr(range)));
}

/** Returns the network that the kernel makes reachable with an address; an empty list if the prefix covers the address only. */
function routeOf(address: string): AddedRoute[] {
  const network = networkOf(parseCidr(address));
  if (network.prefixLength === 8 * network.octets.length) return [];
  return [{ network, destination: formatCidr(network.octets, network.prefixLength), address }];
}

/** Returns the error for a value that the `limits` of a class do not allow. */
export function overLimit(
  claim: AllocatedClaim,
  limit: keyof ClassLimits,
  what: string,
  allowed: string,
  hint?: string,
): DriverError {
  const problem = ` ${what}, and limits.${limit} of its DeviceClass is ${allowed || 'empty'}`;
  return refusal(claim, 'config-invalid', problem, { hint });
}
