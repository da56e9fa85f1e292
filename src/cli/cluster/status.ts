import { isDeepStrictEqual } from 'node:util';
import type { StoredView } from '../../driver/nodeview/index.ts';
import type { NetworkDevicePolicy } from '../../driver/policy/index.ts';
import type { AllocatedDevice, ResourceClaim } from '../../framework/kube/index.ts';
import { claimName } from '../../framework/metadata/index.ts';
import type { Device, DeviceTaint, ResourceSlice } from '../../framework/resourceslice/index.ts';
import { formatTable, type Terminal } from '../terminal.ts';
import { type DriverPod, type DriverPodsOptions, readDriverPods } from './driver-pods.ts';
import type { Cluster, DeviceTaintRule } from './open-cluster.ts';

/** A node that has a pod of the driver, or offers its devices. */
export interface NodeStatus {
  node: string;
  /** The driver's pod; absent if there is none on the node. */
  pod?: DriverPod;
  /**
   * Number of offered devices. The following fields count devices, too. `inUse`: allocated to a claim that is reserved for a
   * pod; `tainted`: kept from new claims, or from their pods, by a taint.
   */
  offered: number;
  allocated: number;
  inUse: number;
  tainted: number;
  /** Problems that need attention, as text. */
  problems: string[];
  /**
   * Devices that the node does not offer, as text with the reasons, if the node publishes them. Most of them are excluded by
   * the policy.
   */
  withheld?: string[];
}

export interface ClusterStatus {
  driver: string;
  nodes: NodeStatus[];
  policies: PolicyStatus[];
}

/** A NetworkDevicePolicy, and the nodes' reports on it. */
export interface PolicyStatus {
  name: string;
  generation: number;
  /** Number of nodes that apply this generation of the policy. `earlierInForce`: those that apply an earlier one. */
  inForce: number;
  earlierInForce: number;
}

/** Reads the devices that nodes offer and those that claims have. @throws KubeError, NetdraError `list-forbidden` */
export async function readStatus(cluster: Cluster, options: DriverPodsOptions): Promise<ClusterStatus> {
  const { driverName: driver } = options;
  const [slices, claims, pods, rules, views, policies] = await Promise.all([
    cluster.listResources<ResourceSlice>('resourceslices', { fieldSelector: `spec.driver=${driver}` }),
    cluster.listResources<ResourceClaim>('resourceclaims'),
    readDriverPods(cluster, options),
    cluster.listTaintRules(),
    cluster.listViews(),
    cluster.listPolicies(),
  ]);
  const viewOf = new Map(
    views.flatMap(({ metadata: { name }, status }) => (status?.driver.name === driver ? [[name, status]] : [])),
  );
  const slicesOf = Map.groupBy(
    slices.map((slice) => withRules(slice, rules)),
    ({ spec }) => spec.nodeName,
  );
  const allocations = allocationsOf(driver, claims);
  // A pool has the name of its node.
  const names = new Set([...pods.keys(), ...slicesOf.keys(), ...allocations.keys()]);
  const nodes = [...names].sort().map((node) => {
    const own = slicesOf.get(node) ?? [];
    return withView(toNodeStatus(node, pods.get(node), own, allocations.get(node) ?? []), own, viewOf.get(node));
  });
  return { driver, nodes, policies: policies.map((each) => toPolicyStatus(each, [...viewOf.values()])) };
}

/** A taint, and the DeviceTaintRule that applied it. */
type KnownTaint = DeviceTaint & { rule?: string };

/** Adds the taints of DeviceTaintRules to a slice. The scheduler treats them like those of the slice. */
function withRules(slice: ResourceSlice, rules: readonly DeviceTaintRule[]): ResourceSlice {
  const { driver, pool, devices = [] } = slice.spec;
  const added = (name: string): KnownTaint[] => {
    const facts = { driver, pool: pool.name, device: name };
    const isAbout = ({ spec: { deviceSelector } }: DeviceTaintRule) =>
      deviceSelector !== undefined && isDeepStrictEqual({ ...facts, ...deviceSelector }, facts);
    return rules.filter(isAbout).map(({ metadata, spec }) => ({ ...spec.taint, rule: metadata.name }));
  };
  const all = devices.map((device) => ({ ...device, taints: [...(device.taints ?? []), ...added(device.name)] }));
  return { ...slice, spec: { ...slice.spec, devices: all } };
}

function toPolicyStatus({ metadata }: NetworkDevicePolicy, views: readonly StoredView[]): PolicyStatus {
  const { name = '', generation = 0 } = metadata;
  const generations = views.flatMap(({ policy }) => (policy.name === name ? [policy.generation] : []));
  const inForce = generations.filter((each) => each === generation).length;
  return { name, generation, inForce, earlierInForce: generations.length - inForce };
}

interface Allocation {
  claim: string;
  device: string;
  isInUse: boolean;
}

/** Returns the allocated devices, by pool. Leaves out requests with admin access, which allocate no device. */
function allocationsOf(driver: string, claims: readonly ResourceClaim[]): Map<string, Allocation[]> {
  const all = claims.flatMap((claim) => {
    const { namespace = '', name = '' } = claim.metadata ?? {};
    return devicesOf(driver, claim)
      .filter(({ adminAccess }) => adminAccess !== true)
      .map(({ pool, device }) => {
        const isInUse = (claim.status?.reservedFor ?? []).length > 0;
        return { pool, device, claim: claimName({ namespace, name }), isInUse };
      });
  });
  return Map.groupBy(all, ({ pool }) => pool);
}

/** Returns the driver's devices in the allocation of a claim. */
export function devicesOf(driver: string, { status }: ResourceClaim): AllocatedDevice[] {
  return (status?.allocation?.devices?.results ?? []).filter((result) => result.driver === driver);
}

function toNodeStatus(
  node: string,
  pod: DriverPod | undefined,
  slices: readonly ResourceSlice[],
  allocations: readonly Allocation[],
): NodeStatus {
  const generation = Math.max(...slices.map(({ spec }) => spec.pool.generation));
  const current = slices.filter(({ spec }) => spec.pool.generation === generation);
  const devices = current.flatMap(({ spec }) => spec.devices ?? []);
  const wanted = current[0]?.spec.pool.resourceSliceCount ?? 0;
  const isComplete = current.length === wanted;
  const problems = [
    ...podProblems(pod),
    ...(isComplete
      ? []
      : [
          `${current.length} of ${wanted} ResourceSlices of the node are published: no claim gets a device of this node`,
        ]),
    ...taintProblems(devices),
    ...(isComplete ? lostDevices(devices, allocations) : []),
  ];
  const count = (found: readonly Allocation[]) => new Set(found.map(({ device }) => device)).size;
  return {
    node,
    ...(pod === undefined ? {} : { pod }),
    offered: devices.length,
    allocated: count(allocations),
    inUse: count(allocations.filter(({ isInUse }) => isInUse)),
    tainted: devices.filter((device) => taintsOf(device).length > 0).length,
    problems,
  };
}

/**
 * Adds problems and withheld devices from the node's view, which no other object shows. Leaves out tainted devices, which are
 * already among the problems.
 */
function withView(status: NodeStatus, slices: readonly ResourceSlice[], view: StoredView | undefined): NodeStatus {
  if (view === undefined) return status;
  const failed = view.conditions.filter((each) => each.status === 'False');
  const problems = failed.map(({ type, reason, message }) => `${type} is False: ${reason}: ${message}`);
  const tainted = new Set(
    slices.flatMap(({ spec }) => spec.devices ?? []).flatMap((device) => taintsOf(device).map(({ key }) => key)),
  );
  const isTaint = (reason: string) => tainted.has(`${view.driver.name}/${reason}`);
  const withheld = view.withheld.flatMap(({ pf, reason, message, devices }) =>
    isTaint(reason) ? [] : `${countText(devices.length)}${ofPf(pf)} withheld: ${message}`,
  );
  return { ...status, problems: [...status.problems, ...problems], withheld };
}

function podProblems(pod: DriverPod | undefined): string[] {
  if (pod === undefined) return ['no pod of the driver is on the node'];
  return pod.ready ? [] : [`pod ${pod.namespace}/${pod.name} of the driver is not ready: ${pod.reason}`];
}

function taintsOf({ taints = [] }: Device): KnownTaint[] {
  return taints.filter(({ effect }) => effect !== 'None');
}

/** Describes taints. Devices of a PF with the same taint share a line. */
function taintProblems(devices: readonly Device[]): string[] {
  const all = devices.flatMap((device) => {
    const pf = device.attributes?.pfName?.string;
    return taintsOf(device).map(({ key, value, effect, rule }) => {
      const by = rule === undefined ? '' : ` by DeviceTaintRule ${rule}`;
      return `${ofPf(pf)} tainted${by}: ${key}${value === undefined ? '' : `=${value}`}, ${effect}`;
    });
  });
  return [...Map.groupBy(all, (text) => text)].map(([text, { length }]) => {
    return `${countText(length)}${text}`;
  });
}

const countText = (count: number, one = 'device') => `${count} ${count === 1 ? one : `${one}s`}`;
const ofPf = (pf: string | undefined) => (pf === undefined ? '' : ` of PF ${pf}`);

function lostDevices(devices: readonly Device[], allocations: readonly Allocation[]): string[] {
  const offered = new Set(devices.map(({ name }) => name));
  const lost = allocations.filter(({ device }) => !offered.has(device));
  return lost.map(({ device, claim }) => `device ${device} of claim ${claim} is no longer offered`);
}

function formatPolicy({ name, generation, inForce, earlierInForce }: PolicyStatus): string {
  const earlier = earlierInForce === 0 ? '' : `, an earlier generation on ${earlierInForce}`;
  return `policy ${name}, generation ${generation}: in force on ${countText(inForce, 'node')}${earlier}\n`;
}

/** Formats the status as text. @param shown nodes that get a line; the totals count all nodes */
export function formatStatus(
  terminal: Terminal,
  { driver, nodes, policies }: ClusterStatus,
  shown: readonly NodeStatus[] = nodes,
): string {
  if (nodes.length === 0) {
    return `no node has a pod or a device of ${driver}: check that the driver is installed, and --driver-name\n`;
  }
  const head = ['NODE', 'VERSION', 'READY', 'OFFERED', 'ALLOCATED', 'IN USE', 'TAINTED'];
  const rows = shown.map(({ node, pod, offered, allocated, inUse, tainted }) => {
    const isReady = pod?.ready ? 'yes' : terminal.style('red', pod === undefined ? 'no pod' : 'no');
    const ofTainted = tainted === 0 ? '0' : terminal.style('yellow', `${tainted}`);
    return [node, pod?.version ?? '', isReady, `${offered}`, `${allocated}`, `${inUse}`, ofTainted];
  });
  const problems = shown.flatMap(({ node, problems, withheld = [] }) => {
    return [...problems, ...withheld].map((text) => `${terminal.style('bold', node)}: ${text}\n`);
  });
  const sum = (key: 'offered' | 'allocated' | 'inUse' | 'tainted') =>
    nodes.reduce((total, node) => total + node[key], 0);
  const ready = nodes.filter(({ pod }) => pod?.ready).length;
  const counts = `${countText(sum('offered'))}, ${sum('allocated')} allocated, ${sum('inUse')} in use, ${sum('tainted')} tainted`;
  const total = `${countText(nodes.length, 'node')}, the driver ready on ${ready}: ${counts}\n`;
  const below = [...problems, ...policies.map(formatPolicy)];
  const blocks = [rows.length === 0 ? '' : formatTable(terminal, head, rows), below.join(''), total];
  return blocks.filter((block) => block !== '').join('\n');
}
