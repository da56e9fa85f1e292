import { badRequest } from './api-server-status.ts';

/** A resource that the double knows, in the version it is stored in. */
export interface ResourceType {
  group: string;
  /** Version of the stored shape. */
  storageVersion: string;
  plural: string;
  kind: string;
  namespaced: boolean;
  /** Whether `/status` is a subresource, so that neither endpoint writes the other's half. */
  hasStatus: boolean;
  /** Whether `metadata.generation` counts the changes of the spec. Claims, templates, nodes and events have none. */
  hasGeneration: boolean;
  /** Whether it comes from a CRD: list items then carry `apiVersion` and `kind`. */
  isCustom: boolean;
  /** Fields for `fieldSelector` besides `metadata.name` and `metadata.namespace`. */
  selectableFields: string[];
}

function resource(group: string, plural: string, kind: string, more: Partial<ResourceType> = {}): ResourceType {
  return {
    group,
    storageVersion: 'v1',
    plural,
    kind,
    namespaced: true,
    hasStatus: false,
    hasGeneration: false,
    isCustom: false,
    selectableFields: [],
    ...more,
  };
}

/** Everything that netdra reads or writes, and what its tests need around it. */
export const resourceTypes: readonly ResourceType[] = [
  resource('', 'namespaces', 'Namespace', { namespaced: false, hasStatus: true }),
  resource('', 'nodes', 'Node', { namespaced: false, hasStatus: true, selectableFields: ['spec.unschedulable'] }),
  resource('', 'pods', 'Pod', {
    hasStatus: true,
    hasGeneration: true,
    selectableFields: ['spec.nodeName', 'spec.restartPolicy', 'spec.schedulerName', 'status.phase', 'status.podIP'],
  }),
  resource('', 'serviceaccounts', 'ServiceAccount'),
  resource('', 'events', 'Event', {
    selectableFields: [
      'involvedObject.kind',
      'involvedObject.namespace',
      'involvedObject.name',
      'involvedObject.uid',
      'reason',
      'reportingComponent',
      'type',
    ],
  }),
  // The real server keeps both groups' events in one place; here those of one are not seen in the other.
  resource('events.k8s.io', 'events', 'Event', {
    selectableFields: ['regarding.kind', 'regarding.namespace', 'regarding.name', 'regarding.uid', 'reason', 'type'],
  }),
  resource('resource.k8s.io', 'resourceclaims', 'ResourceClaim', { hasStatus: true }),
  resource('resource.k8s.io', 'resourceclaimtemplates', 'ResourceClaimTemplate'),
  resource('resource.k8s.io', 'resourceslices', 'ResourceSlice', {
    namespaced: false,
    hasGeneration: true,
    selectableFields: ['spec.nodeName', 'spec.driver', 'spec.pool.name'],
  }),
  resource('resource.k8s.io', 'deviceclasses', 'DeviceClass', { namespaced: false, hasGeneration: true }),
  resource('k8s.cni.cncf.io', 'network-attachment-definitions', 'NetworkAttachmentDefinition', {
    hasGeneration: true,
    isCustom: true,
  }),
];

/** Versions of resource.k8s.io that can be served, newest first. */
export const draVersions = ['v1', 'v1beta2', 'v1beta1'] as const;
export type DraVersion = (typeof draVersions)[number];

/**
 * @param kind `Pod`; where two groups have the same, `Event.events.k8s.io` is that of the other one
 * @throws ApiStatusError 400 for a kind the double does not know
 */
export function typeOfKind(kind: string | undefined): ResourceType {
  const type =
    resourceTypes.find((candidate) => candidate.kind === kind) ??
    resourceTypes.find((candidate) => `${candidate.kind}.${candidate.group}` === kind);
  if (type === undefined) throw badRequest(`no kind "${kind}" is registered`);
  return type;
}

export function apiVersionOf(type: ResourceType, version: string): string {
  return type.group === '' ? version : `${type.group}/${version}`;
}

/** What the path of a request is about. */
export interface ResourcePath {
  group: string;
  version: string;
  plural: string;
  namespace?: string;
  name?: string;
  subresource?: string;
}

/**
 * Takes `/api/v1/…` or `/apis/<group>/<version>/…` apart.
 * @returns `undefined` for paths that are no resource (discovery, health, nonsense)
 */
export function parseResourcePath(pathname: string): ResourcePath | undefined {
  const steps = pathname
    .split('/')
    .filter((step) => step !== '')
    .map(decodeURIComponent);
  const root = steps.shift();
  if (root !== 'api' && root !== 'apis') return undefined;
  const group = root === 'api' ? '' : steps.shift();
  const version = steps.shift();
  if (group === undefined || version === undefined) return undefined;
  const namespace = steps[0] === 'namespaces' && steps.length > 2 ? steps.splice(0, 2)[1] : undefined;
  const [plural, name, subresource, ...rest] = steps;
  if (plural === undefined || rest.length > 0) return undefined;
  return {
    group,
    version,
    plural,
    ...(namespace === undefined ? {} : { namespace }),
    ...(name === undefined ? {} : { name }),
    ...(subresource === undefined ? {} : { subresource }),
  };
}
