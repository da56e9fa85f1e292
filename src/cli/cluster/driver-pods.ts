import type { Cluster } from './open-cluster.ts';

/** A pod of the driver. */
export interface DriverPod {
  namespace: string;
  name: string;
  container: string;
  /** Tag of the image; for an image without a tag, the version in the pod's labels. */
  version: string;
  ready: boolean;
  /** Reason reported by the node if the pod is not ready. */
  reason?: string;
}

/** The fields read from a pod. Source: core/v1 `Pod`. */
interface ListedPod {
  metadata: {
    namespace: string;
    name: string;
    labels?: Record<string, string>;
    creationTimestamp: string;
    ownerReferences?: { kind: string }[];
  };
  spec: {
    nodeName?: string;
    affinity?: { nodeAffinity?: { requiredDuringSchedulingIgnoredDuringExecution?: NodeSelector } };
    containers: { name: string; image?: string; args?: string[] }[];
  };
  status?: {
    phase?: string;
    reason?: string;
    conditions?: { type: string; status: string; message?: string }[];
    containerStatuses?: { state?: Record<string, { reason?: string; message?: string }> }[];
  };
}

interface NodeSelector {
  nodeSelectorTerms: { matchFields?: { key: string; values?: string[] }[] }[];
}

export interface DriverPodsOptions {
  driverName: string;
  /** Label selector of the driver's pods. */
  selector: string;
  /** Namespace of the driver's pods. Default: the namespace in the installation guide. */
  driverNamespace?: string;
}

/** Namespace in the installation guide, docs/operators.md. */
export const defaultDriverNamespace = 'netdra';

/**
 * Returns the driver's pods by node. If a rolling update has two pods on a node, returns the newer one. Only pods in the
 * driver's namespace count, and only those of a DaemonSet or without an owner: every tenant can give a pod the labels of the
 * chart.
 */
export async function readDriverPods(
  cluster: Cluster,
  { driverName, selector, driverNamespace = defaultDriverNamespace }: DriverPodsOptions,
): Promise<Map<string, DriverPod>> {
  const pods = await cluster.listPods<ListedPod>(driverNamespace, { labelSelector: selector });
  const ofDriver = pods.filter((pod) => isOfDaemonSet(pod) && driverNameOf(pod) === driverName);
  const byAge = ofDriver.sort((a, b) => (a.metadata.creationTimestamp < b.metadata.creationTimestamp ? -1 : 1));
  return new Map(byAge.map((pod) => [nodeOf(pod), toDriverPod(pod)]));
}

/**
 * Returns whether all owners of a pod are DaemonSets. Also accepts a pod without an owner: the driver may run without a
 * DaemonSet.
 */
function isOfDaemonSet({ metadata: { ownerReferences = [] } }: ListedPod): boolean {
  return ownerReferences.every(({ kind }) => kind === 'DaemonSet');
}

/** Returns the driver's name from the container's `--driver-name`, which the chart sets, or else the default of that flag. */
function driverNameOf({ spec }: ListedPod): string {
  const flag = '--driver-name=';
  const given = spec.containers.flatMap(({ args = [] }) => args).findLast((arg) => arg.startsWith(flag));
  return given?.slice(flag.length) ?? 'sriov.netdra.dev';
}

/**
 * Returns the name of a pod's node. If the pod is not bound yet, its node affinity names the node: a DaemonSet creates each pod
 * for one node.
 */
function nodeOf({ spec }: ListedPod): string {
  const terms = spec.affinity?.nodeAffinity?.requiredDuringSchedulingIgnoredDuringExecution?.nodeSelectorTerms ?? [];
  const fields = terms.flatMap(({ matchFields = [] }) => matchFields);
  return spec.nodeName ?? fields.find(({ key }) => key === 'metadata.name')?.values?.[0] ?? '';
}

function toDriverPod(pod: ListedPod): DriverPod {
  const { metadata, spec, status } = pod;
  const { namespace, name, labels = {} } = metadata;
  const tag = /:([^:/@]+)(@|$)/.exec(spec.containers[0]?.image?.replace(/@.*/, '') ?? '')?.[1];
  const version = tag ?? labels['app.kubernetes.io/version'] ?? '';
  const ready = status?.conditions?.some(({ type, status }) => type === 'Ready' && status === 'True') === true;
  const container = spec.containers[0]?.name ?? '';
  return { namespace, name, container, version, ready, ...(ready ? {} : { reason: reasonOf(pod) }) };
}

function reasonOf({ status = {} }: ListedPod): string {
  const states = (status.containerStatuses ?? []).map(({ state }) => state?.waiting ?? state?.terminated);
  const state = states.find((each) => each !== undefined);
  const condition = ['PodScheduled', 'Ready']
    .map((wanted) => status.conditions?.find(({ type, status }) => type === wanted && status !== 'True'))
    .find((each) => each !== undefined);
  const facts = state === undefined ? [status.reason, condition?.message] : [state.reason, state.message];
  return facts.filter((fact) => fact !== undefined).join(': ') || (status.phase ?? 'not started');
}
