import { isUserSpace, type StoredClaim, type StoredDevice } from '../driver/model/index.ts';
import { mostPodLinks } from '../driver/vf/networks.ts';
import { baseRequest, type InspectedClaim } from '../framework/metadata/index.ts';
import { explain } from '../lib/errors.ts';
import {
  findVf,
  type Link,
  type LinkFinder,
  NetlinkError,
  NetnsHandle,
  RtnlConnection,
} from '../node/netlink/index.ts';
import { formatSimulatedAlias } from '../node/sriov/index.ts';
import { formatTable, type Terminal } from './terminal.ts';

/** Current place of a claim's device. */
export type DevicePlace =
  /** In the host's network namespace: the device is not yet in its pod, or was already returned. */
  | { in: 'host'; interfaceName: string }
  /** In the network namespace of the pod's sandbox. */
  | { in: 'pod'; interfaceName: string; netnsPath: string; sandboxId: string; pod: string }
  /** Without an interface, since a program uses the device through vfio. `pod` is set if the pod's sandbox exists. */
  | { in: 'user-space'; sandboxId?: string; pod?: string }
  /** Not found in any of these places. */
  | { in: 'nowhere'; reason: string };

export interface ClaimView {
  namespace: string;
  name: string;
  uid: string;
  state: StoredClaim['state'];
  podUids: string[];
  devices: DeviceView[];
}

export interface DeviceView {
  /** Full reference to the claim's request. */
  request: string;
  device: string;
  pciAddress: string;
  place: DevicePlace;
  ips: string[];
  hardwareAddress: string | undefined;
  /** Generation of the request's metadata; 0: not written yet; absent: the claim has no record. */
  generation: number | undefined;
}

export interface ClaimsOptions {
  claims: readonly StoredClaim[];
  /** Finder of interfaces in the host's network namespace. */
  host: LinkFinder;
  /** Reads the state of a claim's metadata. */
  inspect(claim: { namespace: string; name: string }): Promise<InspectedClaim | undefined>;
}

/** Returns the prepared claims, with the places where their devices are now. */
export async function viewClaims({ claims, host, inspect }: ClaimsOptions): Promise<ClaimView[]> {
  const hostLinks = await host.links();
  return await Promise.all(
    claims.map(async ({ identity, state, podUids, devices }) => {
      const metadata = await inspect(identity);
      const requestOf = ({ request }: StoredDevice) =>
        metadata?.claim.uid === identity.uid
          ? metadata.requests.find(({ base }) => base === baseRequest(request))
          : undefined;
      const views = devices.map(async (device): Promise<DeviceView> => {
        const { request, name, pciAddress } = device;
        const { generation, content } = requestOf(device) ?? {};
        const networkData = content?.find((each) => each.name === name)?.networkData;
        const { ips = [], hardwareAddress } = networkData ?? {};
        const place = await findPlace(device, hostLinks);
        return { request, device: name, pciAddress, place, ips, hardwareAddress, generation };
      });
      return { ...identity, state, podUids, devices: await Promise.all(views) };
    }),
  );
}

async function findPlace(device: StoredDevice, hostLinks: Link[]): Promise<DevicePlace> {
  const { attachment, pciAddress } = device;
  const { sandboxId, netnsPath, podNamespace, podName } = attachment ?? {};
  const pod = `${podNamespace}/${podName}`;
  if (isUserSpace(device)) return { in: 'user-space', ...(sandboxId === undefined ? {} : { sandboxId, pod }) };
  // Only simulated VFs have an alias by which they can be found.
  const find = (links: Link[]) =>
    findVf(links, { pciAddress }) ?? findVf(links, { alias: formatSimulatedAlias(pciAddress) });
  let problem = `its interface is not ${netnsPath === undefined ? 'on the host' : `in ${netnsPath} or on the host`}`;
  if (sandboxId !== undefined && netnsPath !== undefined) {
    try {
      using netns = NetnsHandle.open(netnsPath);
      using connection = RtnlConnection.open(netns);
      const identities = [{ pciAddress }, { alias: formatSimulatedAlias(pciAddress) }];
      const table = await connection.linkTable(mostPodLinks);
      const link = find(table.candidates(identities));
      if (table.isCut?.(identities))
        problem = `the pod has too many links in ${netnsPath} to search them for its interface`;
      if (link !== undefined) return { in: 'pod', interfaceName: link.name, netnsPath, sandboxId, pod };
    } catch (error) {
      if (!(error instanceof NetlinkError)) throw error;
      problem = explain(error);
    }
  }
  const link = find(hostLinks);
  return link === undefined ? { in: 'nowhere', reason: problem } : { in: 'host', interfaceName: link.name };
}

export function formatClaims(terminal: Terminal, claims: ClaimView[]): string {
  if (claims.length === 0) return 'no claims are prepared\n';
  const head = ['CLAIM', 'STATE', 'REQUEST', 'DEVICE', 'WHERE', 'INTERFACE', 'ADDRESSES', 'GENERATION'];
  const rows = claims.flatMap(({ namespace, name, state, devices }) => {
    const claim = `${namespace}/${name}`;
    const stateText = state === 'prepared' ? state : terminal.style('yellow', state);
    if (devices.length === 0) return [[claim, stateText, '', '', '', '', '', '']];
    return devices.map(({ request, pciAddress, place, ips, generation }) => {
      const interfaceName = 'interfaceName' in place ? place.interfaceName : '';
      const written = generation === 0 ? 'not written yet' : String(generation ?? '');
      const where = formatPlace(terminal, place);
      return [claim, stateText, request, pciAddress, where, interfaceName, ips.join(' '), written];
    });
  });
  return formatTable(terminal, head, rows);
}

function formatPlace(terminal: Terminal, place: DevicePlace): string {
  if (place.in === 'pod') return `pod ${place.pod}`;
  if (place.in === 'host') return 'host';
  if (place.in === 'user-space')
    return place.pod === undefined ? 'host, for user space' : `pod ${place.pod}, user space`;
  return terminal.style('red', `nowhere: ${place.reason}`);
}
