import type {
  KubernetesObject,
  ResourceV1ResourceClaim,
  V1Capabilities,
  V1Container,
  V1DeviceClass,
  V1DeviceRequest,
  V1DeviceSubRequest,
  V1DeviceToleration,
  V1Job,
  V1Pod,
  V1PodSpec,
  V1ResourceClaimTemplate,
} from '@kubernetes/client-node';
import type { Cluster } from './cluster.ts';

export interface RequestSpec {
  name: string;
  /** Number of devices, default 1. */
  count?: number;
  /** Only observes devices, including allocated ones. */
  adminAccess?: boolean;
  /** CEL expressions that a device must meet besides those of its class. */
  selectors?: string[];
  /** Taints that its devices may have. */
  tolerations?: V1DeviceToleration[];
  /** Alternatives that replace all the rest, the best first. */
  firstAvailable?: V1DeviceSubRequest[];
  /** Default: the chart's class for interfaces. */
  deviceClassName?: string;
  /** The VFConfig of the request, without its version. */
  config?: object;
}

/** A VFConfig, without its version, for several requests of a claim. */
export interface SharedConfig {
  requests: string[];
  config: object;
  /** Attribute of the driver in which their devices differ. */
  distinct?: string;
}

type ClaimSpec = ResourceV1ResourceClaim['spec'];

function vfConfig(cluster: Cluster, config: object) {
  const parameters = { apiVersion: 'netdra.dev/v1alpha1', kind: 'VFConfig', ...config };
  return { opaque: { driver: cluster.target.driver, parameters } };
}

function claimSpec(cluster: Cluster, requests: RequestSpec[], shared: SharedConfig[] = []): ClaimSpec {
  const own = requests.flatMap(({ name, config }) => (config === undefined ? [] : [{ requests: [name], config }]));
  const configs = [...shared, ...own];
  const constraints = shared.flatMap(({ requests, distinct }) =>
    distinct === undefined ? [] : [{ requests, distinctAttribute: `${cluster.target.driver}/${distinct}` }],
  );
  return {
    devices: {
      requests: requests.map((request) => toRequest(cluster, request)),
      ...(constraints.length === 0 ? {} : { constraints }),
      ...(configs.length === 0
        ? {}
        : { config: configs.map((each) => ({ requests: each.requests, ...vfConfig(cluster, each.config) })) }),
    },
  };
}

function toRequest(cluster: Cluster, { name, count = 1, firstAvailable, ...request }: RequestSpec): V1DeviceRequest {
  if (firstAvailable !== undefined) return { name, firstAvailable };
  const { deviceClassName = cluster.target.classes.kernel, adminAccess, selectors, tolerations } = request;
  const optional = {
    ...(adminAccess === undefined ? {} : { adminAccess }),
    ...(tolerations === undefined ? {} : { tolerations }),
    ...(selectors === undefined ? {} : { selectors: selectors.map((expression) => ({ cel: { expression } })) }),
  };
  return { name, exactly: { deviceClassName, allocationMode: 'ExactCount', count, ...optional } };
}

/**
 * A claim in the test namespace.
 * @param shared configurations of several requests, before those of single ones
 */
export function testClaim(
  cluster: Cluster,
  name: string,
  requests: RequestSpec[],
  shared?: SharedConfig[],
): ResourceV1ResourceClaim & KubernetesObject {
  const metadata = { name, namespace: cluster.namespace };
  const spec = claimSpec(cluster, requests, shared);
  return { apiVersion: 'resource.k8s.io/v1', kind: 'ResourceClaim', metadata, spec };
}

/** A template for claims. */
export function testTemplate(
  cluster: Cluster,
  name: string,
  requests: RequestSpec[],
): V1ResourceClaimTemplate & KubernetesObject {
  const metadata = { name, namespace: cluster.namespace };
  const spec = { spec: claimSpec(cluster, requests) };
  return { apiVersion: 'resource.k8s.io/v1', kind: 'ResourceClaimTemplate', metadata, spec };
}

/** A class for all devices of the driver, with settings that only classes may have. Its name contains the namespace. */
export function testClass(cluster: Cluster, name: string, config: object): V1DeviceClass & KubernetesObject {
  return {
    apiVersion: 'resource.k8s.io/v1',
    kind: 'DeviceClass',
    metadata: { name: `${cluster.namespace}-${name}` },
    spec: {
      selectors: [{ cel: { expression: `device.driver == "${cluster.target.driver}"` } }],
      config: [vfConfig(cluster, config)],
    },
  };
}

export interface ContainerSpec {
  name: string;
  /** Claims by their names in the pod; default: all, as a whole. */
  claims?: { name: string; request?: string }[];
  /** Default: waits, and ends on SIGTERM. */
  command?: string[];
  /** Default: none that must be requested. */
  capabilities?: V1Capabilities;
  /** For an init container: it keeps running beside the others (a sidecar). */
  restartPolicy?: 'Always';
  /** Resources by their names, as requests and limits. */
  limits?: Record<string, string>;
}

export interface PodSpec {
  /** Default: `Never`. */
  restartPolicy?: 'Always';
  claims?: { name: string; resourceClaimName?: string; resourceClaimTemplateName?: string }[];
  /** Default: one, `main`. */
  containers?: ContainerSpec[];
  /** Init containers, run one after the other. Default: none. */
  initContainers?: ContainerSpec[];
  /** `false`: in its own user namespace. */
  hostUsers?: false;
}

const waitingCommand = ['sh', '-c', 'trap "exit 0" TERM; while :; do sleep 3600 & wait $!; done'];

/** A pod on the tests' node. Its containers have a shell, iproute2, DPDK's testpmd and netdra-metadata. */
export function testPod(cluster: Cluster, name: string, spec: PodSpec): V1Pod & KubernetesObject {
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name, namespace: cluster.namespace },
    spec: podSpec(cluster, spec),
  };
}

/** Creates a claim, and a pod of its name that has it as `nic`. @returns the claim */
export async function createPodWithClaim(cluster: Cluster, name: string, requests: RequestSpec[], spec: PodSpec = {}) {
  const claim = await cluster.create(testClaim(cluster, name, requests));
  await cluster.create(testPod(cluster, name, { claims: [{ name: 'nic', resourceClaimName: name }], ...spec }));
  return claim;
}

/** A job that runs such a pod to its end. */
export function testJob(cluster: Cluster, name: string, spec: PodSpec): V1Job & KubernetesObject {
  return {
    apiVersion: 'batch/v1',
    kind: 'Job',
    metadata: { name, namespace: cluster.namespace },
    spec: { backoffLimit: 0, template: { spec: podSpec(cluster, spec) } },
  };
}

function podSpec(cluster: Cluster, { claims = [], containers, initContainers = [], ...rest }: PodSpec): V1PodSpec {
  const specs = containers ?? [{ name: 'main' }];
  return {
    ...onNode(cluster),
    ...rest,
    ...(claims.length === 0 ? {} : { resourceClaims: claims }),
    ...(initContainers.length === 0
      ? {}
      : { initContainers: initContainers.map((each) => toContainer(cluster, each, claims)) }),
    containers: specs.map((each) => toContainer(cluster, each, claims)),
  };
}

/** Properties of all test pods. */
export function onNode(cluster: Cluster) {
  return {
    restartPolicy: 'Never',
    terminationGracePeriodSeconds: 1,
    automountServiceAccountToken: false,
    nodeSelector: { 'kubernetes.io/hostname': cluster.node.hostname },
    tolerations: [{ operator: 'Exists' }],
  };
}

export function toContainer(
  { target }: Cluster,
  { name, claims, command = waitingCommand, capabilities, restartPolicy, limits }: ContainerSpec,
  podClaims: { name: string }[] = [],
): V1Container {
  const used = claims ?? podClaims.map((each) => ({ name: each.name }));
  return {
    name,
    image: target.consumerImage,
    imagePullPolicy: 'IfNotPresent',
    command,
    ...(used.length + Object.keys(limits ?? {}).length === 0
      ? {}
      : { resources: { claims: used, ...(limits && { limits }) } }),
    ...(restartPolicy === undefined ? {} : { restartPolicy }),
    ...(capabilities === undefined ? {} : { securityContext: { capabilities } }),
  };
}

/** The definition of a kind of another project, with any fields: which version the user has does not matter. */
export function anyFieldsDefinition(group: string, version: string, kind: string) {
  const singular = kind.toLowerCase();
  const schema = { openAPIV3Schema: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true } };
  return {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: `${singular}s.${group}` },
    spec: {
      group,
      scope: 'Namespaced',
      names: { kind, plural: `${singular}s`, singular, listKind: `${kind}List` },
      versions: [{ name: version, served: true, storage: true, schema }],
    },
  };
}
