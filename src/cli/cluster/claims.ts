import { isOfSameDevice } from '../../framework/claimstatus/index.ts';
import type { AllocatedDevice, AllocatedDeviceStatus, ResourceClaim } from '../../framework/kube/index.ts';
import { claimName } from '../../framework/metadata/index.ts';
import { defined } from '../../lib/defined.ts';
import { formatTable, type Terminal } from '../terminal.ts';
import type { Cluster } from './open-cluster.ts';
import { devicesOf } from './status.ts';

/** A claim with devices of the driver, as the API server reports it. */
export interface ClusterClaim {
  namespace: string;
  name: string;
  uid: string;
  /** Names of the pods for which the claim is reserved. */
  pods: string[];
  /** Names of the DeviceClasses in its requests. */
  classes: string[];
  devices: ClusterDevice[];
}

export interface ClusterDevice {
  request: string;
  /** Name of the node, which is also the name of the pool. */
  node: string;
  device: string;
  /** Status of the condition `Ready` in the claim's status; absent if the driver has reported nothing. */
  ready?: boolean;
  /** Reason of the condition `Ready`, one word. */
  reason?: string;
  /** Message of the condition `Ready`. */
  message?: string;
  interfaceName?: string;
  hardwareAddress?: string;
  ips: string[];
  /** Messages of the claim's other conditions. */
  warnings: string[];
}

/**
 * Reads the claims with devices of the driver. @param namespace absent: all namespaces @throws KubeError, NetdraError
 * `list-forbidden`
 */
export async function readClaims(
  cluster: Cluster,
  { driverName, namespace }: { driverName: string; namespace?: string | undefined },
): Promise<ClusterClaim[]> {
  const path = namespace === undefined ? 'resourceclaims' : `namespaces/${namespace}/resourceclaims`;
  const claims = await cluster.listResources<ResourceClaim>(path);
  return claims.flatMap((claim) => {
    const results = devicesOf(driverName, claim);
    if (results.length === 0) return [];
    const { namespace = '', name = '', uid = '' } = claim.metadata ?? {};
    const { reservedFor = [], devices = [] } = claim.status ?? {};
    const pods = reservedFor.filter(({ resource }) => resource === 'pods').map(({ name }) => name);
    const classes = classesOf(claim);
    return [{ namespace, name, uid, pods, classes, devices: results.map((result) => toDevice(result, devices)) }];
  });
}

function classesOf({ spec }: ResourceClaim): string[] {
  const requests = spec.devices?.requests ?? [];
  const all = requests.flatMap(({ exactly, firstAvailable = [] }) => (exactly ? [exactly] : firstAvailable));
  return [...new Set(all.map(({ deviceClassName }) => deviceClassName))];
}

function toDevice(result: AllocatedDevice, statuses: readonly AllocatedDeviceStatus[]): ClusterDevice {
  const { request, pool, device } = result;
  const status = statuses.find((each) => isOfSameDevice(each, result));
  const { conditions = [], networkData = {} } = status ?? {};
  const isReady = conditions.find(({ type }) => type === 'Ready');
  const { ips = [], ...names } = networkData;
  const others = conditions.filter(({ type, status }) => type !== 'Ready' && status === 'False');
  return {
    request,
    node: pool,
    device,
    ...(isReady && { ready: isReady.status === 'True', reason: isReady.reason, message: isReady.message }),
    ...defined(names),
    ips,
    warnings: others.map(({ type, reason, message }) => `${type} is False: ${reason}: ${message}`),
  };
}

export function formatClusterClaims(terminal: Terminal, claims: readonly ClusterClaim[]): string {
  const head = ['CLAIM', 'POD', 'NODE', 'DEVICE', 'STATE', 'INTERFACE', 'ADDRESSES'];
  const rows = claims.flatMap((claim) =>
    claim.devices.map(({ node, device, ready, interfaceName = '', ips }) => {
      const state = formatState(terminal, ready, claim.pods.length > 0);
      return [claimName(claim), claim.pods.join(' '), node, device, state, interfaceName, ips.join(' ')];
    }),
  );
  const notes = claims.flatMap((claim) =>
    claim.devices.flatMap(({ device, ready, reason, message, warnings }) => {
      const why = ready === false ? [`not ready: ${[reason, message].filter(Boolean).join(': ')}`] : [];
      return [...why, ...warnings].map((text) => `${terminal.style('bold', claimName(claim))}: ${device}: ${text}\n`);
    }),
  );
  return [formatTable(terminal, head, rows), ...(notes.length === 0 ? [] : ['\n', ...notes])].join('');
}

function formatState(terminal: Terminal, ready: boolean | undefined, isInUse: boolean): string {
  if (!isInUse) return 'not in use';
  if (ready === undefined) return terminal.style('yellow', 'not reported');
  return ready ? terminal.style('green', 'ready') : terminal.style('red', 'not ready');
}
