import { decodeAnswer } from './errors.ts';
import { decodeNextHop, withNextHops } from './next-hop.ts';
import {
  decodeRoute,
  encodeRouteFilter,
  findRoutes,
  hasZeroPrefix,
  isDefaultRoute,
  maxListedRoutes,
  type Route,
  type RouteId,
} from './route.ts';
import { decodeAll, MessageType, type RtnlRequests } from './rtnl-requests.ts';

/** Finds routes: see `RtnlConnection.findRoutes`. */
export async function readRoutes(
  requests: RtnlRequests,
  index: number,
  wanted: readonly RouteId[],
): Promise<{ found: (Route | undefined)[]; isCut: boolean }> {
  const subject = requests.subject('list routes');
  const request = { type: MessageType.getRoute, payload: encodeRouteFilter(index) };
  // Kernels before 4.20 list the routes of all links.
  const { messages, isCut } = await requests.dumpOf(index, request, subject, maxListedRoutes);
  const routes = messages.filter(({ type }) => type === MessageType.newRoute).map(({ data }) => data);
  return { found: decodeAnswer(() => findRoutes(routes, index, wanted), subject), isCut };
}

/** Lists default routes: see `RtnlConnection.defaultRoutes`. */
export async function readDefaultRoutes(requests: RtnlRequests): Promise<Route[]> {
  const subject = requests.subject('list routes');
  const request = { type: MessageType.getRoute, payload: encodeRouteFilter(), keeps: hasZeroPrefix };
  const candidates = await requests.dump(request, subject);
  const decoded = decodeAll(candidates, MessageType.newRoute, (data) => decodeRoute(data), subject);
  const routes = decoded.filter(isDefaultRoute);
  if (routes.every(({ nextHop }) => nextHop === undefined)) return routes;
  const hops = await requests.dump({ type: MessageType.getNextHop, payload: [Buffer.alloc(8)] }, subject);
  return withNextHops(routes, decodeAll(hops, MessageType.newNextHop, decodeNextHop, subject));
}
