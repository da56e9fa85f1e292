import type {
  KubernetesObject,
  ResourceV1ResourceClaim,
  V1Capabilities,
  V1Container,
  V1DeviceClass,
  V1Pod,
  V1ResourceClaimTemplate,
} from '@kubernetes/client-node';
import type { Cluster } from './cluster.ts';

export interface RequestSpec {
  name: string;
  /** How many devices, default 1. */
  count?: number;
  /** Default: the chart's, for interfaces. */
  deviceClassName?: string;
  /** The VFConfig of the request, but for its version. */
  config?: object;
}

type ClaimSpec = ResourceV1ResourceClaim['spec'];

function vfConfig(cluster: Cluster, config: object) {
  const parameters = { apiVersion: 'netdra.dev/v1alpha1', kind: 'VFConfig', ...config };
  return { opaque: { driver: cluster.target.driver, parameters } };
}

function claimSpec(cluster: Cluster, requests: RequestSpec[]): ClaimSpec {
  const withConfig = requests.flatMap(({ name, config }) => (config === undefined ? [] : [{ name, config }]));
  return {
    devices: {
      requests: requests.map(({ name, count = 1, deviceClassName = cluster.target.classes.kernel }) => ({
        name,
        exactly: { deviceClassName, allocationMode: 'ExactCount', count },
      })),
      ...(withConfig.length === 0
        ? {}
        : { config: withConfig.map(({ name, config }) => ({ requests: [name], ...vfConfig(cluster, config) })) }),
    },
  };
}

/** A claim in the namespace of the tests. */
export function testClaim(
  cluster: Cluster,
  name: string,
  requests: RequestSpec[],
): ResourceV1ResourceClaim & KubernetesObject {
  const metadata = { name, namespace: cluster.namespace };
  return { apiVersion: 'resource.k8s.io/v1', kind: 'ResourceClaim', metadata, spec: claimSpec(cluster, requests) };
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

/** A class for all devices of the driver, with what only classes may set. Its name is nobody else's. */
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
  /** Claims by the pod's names for them; default: all, as a whole. */
  claims?: { name: string; request?: string }[];
  /** Default: waits, and ends when it is told to. */
  command?: string[];
  /** Default: none that needs to be asked for. */
  capabilities?: V1Capabilities;
}

export interface PodSpec {
  /** Default: `Never`. */
  restartPolicy?: 'Always';
  claims?: { name: string; resourceClaimName?: string; resourceClaimTemplateName?: string }[];
  /** Default: one, `main`. */
  containers?: ContainerSpec[];
}

const waitingCommand = ['sh', '-c', 'trap "exit 0" TERM; while :; do sleep 3600 & wait $!; done'];

/** A pod on the node of the tests. Its containers have a shell, iproute2, DPDK's testpmd and netdra-metadata. */
export function testPod(
  cluster: Cluster,
  name: string,
  { claims = [], containers, restartPolicy }: PodSpec,
): V1Pod & KubernetesObject {
  const specs = containers ?? [{ name: 'main' }];
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name, namespace: cluster.namespace },
    spec: {
      ...onNode(cluster),
      ...(restartPolicy === undefined ? {} : { restartPolicy }),
      ...(claims.length === 0 ? {} : { resourceClaims: claims }),
      containers: specs.map((spec) => toContainer(cluster, spec, claims)),
    },
  };
}

/** What all pods of the tests have. */
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
  { name, claims, command = waitingCommand, capabilities }: ContainerSpec,
  podClaims: { name: string }[] = [],
): V1Container {
  const used = claims ?? podClaims.map((each) => ({ name: each.name }));
  return {
    name,
    image: target.consumerImage,
    imagePullPolicy: 'IfNotPresent',
    command,
    ...(used.length === 0 ? {} : { resources: { claims: used } }),
    ...(capabilities === undefined ? {} : { securityContext: { capabilities } }),
  };
}
