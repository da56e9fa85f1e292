import { randomUUID } from 'node:crypto';
import type {
  ResourceV1ResourceClaim,
  V1DeviceAllocationConfiguration,
  V1DeviceRequestAllocationResult,
  V1Node,
  V1Pod,
} from '@kubernetes/client-node';

/** A namespaced object as built here: its identity is set. */
export type Identified<T> = T & {
  apiVersion: string;
  kind: string;
  metadata: { name: string; namespace: string; uid: string };
};

export const testDriver = 'sriov.netdra.dev';
export const testNode = 'node-1';

/** A node that is ready. */
export function buildNode(
  name = testNode,
  more: { uid?: string } = {},
): V1Node & { apiVersion: string; kind: string; metadata: { name: string; uid: string } } {
  return {
    apiVersion: 'v1',
    kind: 'Node',
    metadata: {
      name,
      uid: more.uid ?? randomUUID(),
      labels: { 'kubernetes.io/hostname': name },
    },
    spec: {},
    status: { addresses: [{ type: 'Hostname', address: name }] },
  };
}

export interface PodOptions {
  namespace?: string;
  uid?: string;
  /** `undefined`: {@link testNode}. */
  nodeName?: string;
  /** Entries of `spec.resourceClaims`; those with a template get their claim by {@link generateClaim}. */
  resourceClaims?: { name: string; resourceClaimName?: string; resourceClaimTemplateName?: string }[];
  /** Default: one container `main` that uses every claim as a whole. */
  containers?: { name: string; claims: { name: string; request?: string }[] }[];
}

/** A pod that is bound to a node and waits for its sandbox. */
export function buildPod(name: string, options: PodOptions = {}): Identified<V1Pod> {
  const resourceClaims = options.resourceClaims ?? [];
  const containers = options.containers ?? [
    { name: 'main', claims: resourceClaims.map((claim) => ({ name: claim.name })) },
  ];
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: {
      name,
      namespace: options.namespace ?? 'default',
      uid: options.uid ?? randomUUID(),
    },
    spec: {
      nodeName: options.nodeName ?? testNode,
      containers: containers.map((container) => ({
        name: container.name,
        image: 'localhost/busybox:test',
        ...(container.claims.length === 0 ? {} : { resources: { claims: container.claims } }),
      })),
      ...(resourceClaims.length === 0 ? {} : { resourceClaims }),
    },
    status: { phase: 'Pending' },
  };
}

/** A device of the allocation; a plain text is the device's name in the default pool of the claim's driver. */
export type DeviceChoice =
  | string
  | { device: string; driver?: string; pool?: string; shareID?: string; adminAccess?: boolean };

export interface RequestOptions {
  name: string;
  /** Makes it a `firstAvailable` request with this subrequest chosen: the result's request is `name/subrequest`. */
  subrequest?: string;
  deviceClassName?: string;
  devices: DeviceChoice[];
}

export interface ConfigOptions {
  source: 'FromClass' | 'FromClaim';
  /** The requests to which it applies; none: all. */
  requests?: string[];
  driver?: string;
  parameters: object;
}

export interface ClaimOptions {
  namespace?: string;
  uid?: string;
  driver?: string;
  /** Pool of the devices given as text. Default: the node's name. */
  pool?: string;
  nodeName?: string;
  requests: RequestOptions[];
  config?: ConfigOptions[];
  /** Pods that may use the claim: `status.reservedFor`. */
  pods?: Identified<V1Pod>[];
  annotations?: Record<string, string>;
  /** `false`: as created by the user, without status. */
  allocated?: boolean;
}

/** A claim, allocated on a node as by the scheduler. */
export function buildClaim(name: string, options: ClaimOptions): Identified<ResourceV1ResourceClaim> {
  const nodeName = options.nodeName ?? testNode;
  const driver = options.driver ?? testDriver;
  const claim: Identified<ResourceV1ResourceClaim> = {
    apiVersion: 'resource.k8s.io/v1',
    kind: 'ResourceClaim',
    metadata: {
      name,
      namespace: options.namespace ?? 'default',
      uid: options.uid ?? randomUUID(),
      ...(options.annotations === undefined ? {} : { annotations: options.annotations }),
    },
    spec: {
      devices: {
        requests: options.requests.map((request) => buildRequest(name, request, options.config)),
        ...claimConfig(options, driver),
      },
    },
  };
  if (options.allocated === false) return claim;
  const results = options.requests.flatMap((request) =>
    request.devices.map((device) => buildResult(request, device, driver, options.pool ?? nodeName)),
  );
  const config = (options.config ?? []).map((entry) => buildConfig(entry, driver));
  const onNode = { key: 'metadata.name', operator: 'In', values: [nodeName] };
  claim.status = {
    allocation: {
      devices: { results, ...(config.length === 0 ? {} : { config }) },
      nodeSelector: { nodeSelectorTerms: [{ matchFields: [onNode] }] },
    },
  };
  for (const pod of options.pods ?? []) reserveClaim(claim, pod);
  return claim;
}

/** Lets another pod use the claim. */
export function reserveClaim(claim: ResourceV1ResourceClaim, pod: Identified<V1Pod>): void {
  claim.status ??= {};
  claim.status.reservedFor ??= [];
  claim.status.reservedFor.push({ resource: 'pods', name: pod.metadata.name, uid: pod.metadata.uid });
}

/**
 * The claim that the controller creates from a template for an entry of `pod.spec.resourceClaims`: owned by the pod,
 * annotated, reserved for it, and named in the pod's status (which this function changes).
 */
export function generateClaim(
  pod: Identified<V1Pod>,
  podClaimName: string,
  options: ClaimOptions,
): Identified<ResourceV1ResourceClaim> {
  const name = `${pod.metadata.name}-${podClaimName}-${randomUUID().slice(0, 5)}`;
  const claim = buildClaim(name, {
    ...options,
    namespace: pod.metadata.namespace,
    pods: options.pods ?? (options.allocated === false ? [] : [pod]),
    annotations: { ...options.annotations, 'resource.kubernetes.io/pod-claim-name': podClaimName },
  });
  Object.assign(claim.metadata, {
    generateName: `${pod.metadata.name}-${podClaimName}-`,
    ownerReferences: [
      {
        apiVersion: 'v1',
        kind: 'Pod',
        name: pod.metadata.name,
        uid: pod.metadata.uid,
        controller: true,
        blockOwnerDeletion: true,
      },
    ],
  });
  pod.status ??= {};
  pod.status.resourceClaimStatuses = [
    ...(pod.status.resourceClaimStatuses ?? []),
    { name: podClaimName, resourceClaimName: name },
  ];
  return claim;
}

/** A request without a class gets one with the class configuration from this claim's allocation. */
function buildRequest(claim: string, request: RequestOptions, config: ConfigOptions[] = []) {
  const { name, subrequest, devices } = request;
  const hasConfig = config.some(({ source }) => source === 'FromClass');
  const { deviceClassName = hasConfig ? `class-of-${claim}-${name}` : testDriver } = request;
  const exactly = { deviceClassName, allocationMode: 'ExactCount', count: Math.max(1, devices.length) };
  return subrequest === undefined ? { name, exactly } : { name, firstAvailable: [{ name: subrequest, ...exactly }] };
}

function buildResult(
  request: RequestOptions,
  choice: DeviceChoice,
  driver: string,
  pool: string,
): V1DeviceRequestAllocationResult {
  const device = typeof choice === 'string' ? { device: choice } : choice;
  const name = request.subrequest === undefined ? request.name : `${request.name}/${request.subrequest}`;
  return { request: name, driver, pool, ...device };
}

function buildConfig(
  { source, requests, driver, parameters }: ConfigOptions,
  claimDriver: string,
): V1DeviceAllocationConfiguration {
  return {
    source,
    ...(requests === undefined ? {} : { requests }),
    opaque: { driver: driver ?? claimDriver, parameters },
  };
}

/** The configuration from the claim itself; that of the class appears only in the allocation. */
function claimConfig({ config = [] }: ClaimOptions, driver: string) {
  const fromClaim = config.filter(({ source }) => source === 'FromClaim').map((entry) => buildConfig(entry, driver));
  return fromClaim.length === 0 ? {} : { config: fromClaim.map(({ source: _, ...entry }) => entry) };
}
