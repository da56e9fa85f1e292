import type { CniUse } from '../../driver/api/cni-uses.ts';
import { isKubeError, type KubeClient, ResourceApi } from '../../framework/kube/index.ts';
import { explain } from '../../lib/errors.ts';
import { named, ok, problem, type Verdict, warning } from '../finding.ts';
import { findPoolKinds, poolsEffect, poolVerbs } from './address-pools.ts';
import { checkMultus } from './multus.ts';

/** Time limit of a request, ms; ample for a running API server. */
const timeoutMs = 5_000;

interface Permission {
  group: string;
  /** Name of the resource, with a subresource after a slash. */
  resource: string;
  verbs: string[];
  /** Name of the object; absent: the permission is for all objects. */
  name?: string;
  /** Namespace of the objects; absent: the permission is for all namespaces. */
  namespace?: string;
  /** Another verb that replaces the required ones. */
  otherVerb?: string;
  /** Minor version of the first Kubernetes 1.x that requires the permission. */
  since?: number;
  /** Consequence of a missing permission. */
  effect: string;
  level: typeof problem;
}

function permission(level: Permission['level'], group: string, resource: string, verbs: string, effect: string) {
  return { level, group, resource, verbs: verbs.split(' '), effect };
}

const noStatus = 'claim status does not describe devices';
const slicesVerbs = 'get list watch create update delete';

const viewOf = permission(
  warning,
  'netdra.dev',
  'nodenetworkdevices',
  'get create patch',
  'no NodeNetworkDevices object shows the devices of this node',
);

const ofPolicies = [
  permission(warning, '', 'nodes', 'list watch', 'NetworkDevicePolicies have no effect'),
  permission(warning, 'netdra.dev', 'networkdevicepolicies', 'list watch', 'NetworkDevicePolicies have no effect'),
];

const ofOperator = (namespace: string): Permission => ({
  ...permission(
    warning,
    'sriovnetwork.openshift.io',
    'sriovnetworknodestates',
    'list watch',
    'VFs are not tainted while the SR-IOV network operator changes the node',
  ),
  namespace,
});

const ofAttachments = permission(
  warning,
  'k8s.cni.cncf.io',
  'network-attachment-definitions',
  'get',
  'claims that name a NetworkAttachmentDefinition fail',
);

const permissionsOf = ({
  driverName,
  nodeView,
  policyObjects,
  sriovOperator,
  cniUses,
}: DriverPermissions): Permission[] => [
  permission(problem, 'resource.k8s.io', 'resourceslices', slicesVerbs, 'devices are not offered'),
  permission(problem, 'resource.k8s.io', 'resourceclaims', 'get', 'claims cannot be prepared'),
  permission(problem, 'resource.k8s.io', 'deviceclasses', 'get', 'claims cannot be prepared'),
  permission(
    warning,
    'resource.k8s.io',
    'deviceclasses',
    'list watch',
    'the driver requests the DeviceClass anew for each claim, which delays pods',
  ),
  permission(problem, '', 'nodes', 'get', 'devices are not offered'),
  permission(warning, '', 'namespaces', 'get', 'claims of classes with limits.allowedNamespaces.selector fail'),
  permission(warning, 'resource.k8s.io', 'resourceclaims/status', 'patch', noStatus),
  {
    // The API server checks this permission for each driver whose status entries a write changes; the resource name is that
    // driver's name. Source: resource.k8s.io, `VerbPrefixAssociatedNode`.
    ...permission(warning, 'resource.k8s.io', 'resourceclaims/driver', 'associated-node:patch', noStatus),
    otherVerb: 'arbitrary-node:patch',
    name: driverName,
    since: 36,
  },
  permission(warning, '', 'pods', 'get', 'containers of deleted pods wait up to 100 s in the start gate'),
  permission(warning, 'events.k8s.io', 'events', 'create patch', 'pods and claims get no events'),
  ...(nodeView ? [viewOf] : []),
  ...(policyObjects ? ofPolicies : []),
  ...(sriovOperator === undefined ? [] : [ofOperator(sriovOperator)]),
  ...(cniUses.includes('attach') ? [ofAttachments] : []),
];

/** Settings that determine which permissions the driver needs. */
export interface DriverPermissions {
  driverName: string;
  nodeView: boolean;
  policyObjects: boolean;
  sriovOperator?: string | undefined;
  cniUses: readonly CniUse[];
}

/**
 * Checks that the API server can be reached, serves resource.k8s.io, and gives the driver its permissions. Also checks whether
 * claims meet the expectations of Multus.
 * @param open returns `undefined` if there is neither a kubeconfig nor a service account
 */
export async function checkApiServer(
  driver: DriverPermissions,
  open: () => Promise<KubeClient | undefined>,
): Promise<Verdict[]> {
  let kube: KubeClient | undefined;
  try {
    kube = await open();
  } catch (error) {
    return [problem(explain(error), 'pass a readable kubeconfig: --kubeconfig')];
  }
  if (kube === undefined) {
    const message = 'not checked: there is neither a kubeconfig nor a service account';
    return [warning(message, 'pass --kubeconfig, or run this in the pod of the driver')];
  }
  using client = kube;
  try {
    const versions = { method: 'GET', path: '/version', timeoutMs } as const;
    const { gitVersion, minor } = await client.request<Record<'gitVersion' | 'minor', string>>(versions);
    const version = await findResourceVersion(client);
    // Some clouds report `36+`. A build that reports no version is treated as a new one.
    const release = Number.parseInt(minor, 10);
    const pools = await findPoolKinds(driver.driverName, client);
    const ofPools = pools.served.map((kind) =>
      permission(warning, 'netdra.dev', kind, poolVerbs[kind] ?? '', poolsEffect),
    );
    const asked = [...permissionsOf(driver).filter(({ since = 0 }) => !(release < since)), ...ofPools];
    const denied = await findDenied(client, asked);
    const ofDefinitions = pools.verdicts.map((verdict) => named('address pools', verdict));
    const ofMultus = (await checkMultus(driver.driverName, client)).map((verdict) => named('Multus', verdict));
    return [ok(`Kubernetes ${gitVersion}, resource.k8s.io/${version}`), ...denied, ...ofDefinitions, ...ofMultus];
  } catch (error) {
    return [problem(explain(error), fixOf(error))];
  }
}

/** Returns the best version of resource.k8s.io that the API server serves. @throws KubeError `api-unserved` */
async function findResourceVersion(kube: KubeClient): Promise<string> {
  const api = new ResourceApi(kube);
  try {
    await api.list({ path: 'resourceslices', query: { limit: '1' } });
  } catch (error) {
    // The API server serves the resource if it refuses access. The check of permissions reports the missing one.
    if (!isKubeError(error, 'api-forbidden')) throw error;
  }
  return api.version;
}

async function findDenied(kube: KubeClient, permissions: Permission[]): Promise<Verdict[]> {
  const findings = await Promise.all(
    permissions.map(async (permission) => {
      const { resource, verbs, otherVerb, name, effect, level } = permission;
      const allowed = await Promise.all(verbs.map((verb) => mayDo(kube, permission, verb)));
      const missing = verbs.filter((_, index) => !allowed[index]);
      const isEnough = otherVerb !== undefined && (await mayDo(kube, permission, otherVerb));
      if (missing.length === 0 || isEnough) return [];
      const object = name === undefined ? resource : `${resource} ${name}`;
      const message = `this account may not ${missing.join(', ')} ${object}: ${effect}`;
      return [level(message, 'compare the role of the driver with deploy/manifests/netdra.yaml')];
    }),
  );
  const denied = findings.flat();
  const verdicts = denied.length > 0 ? denied : [ok('this account has all that the driver needs')];
  return verdicts.map((verdict) => named('permissions', verdict));
}

/** Returns whether the API server allows a request. Source: authorization.k8s.io/v1 `SelfSubjectAccessReview`. */
async function mayDo(
  kube: KubeClient,
  { group, resource: path, namespace, name }: Permission,
  verb: string,
): Promise<boolean> {
  const [resource, subresource] = path.split('/');
  const resourceAttributes = { group, resource, subresource, namespace, name, verb };
  const kind = { apiVersion: 'authorization.k8s.io/v1', kind: 'SelfSubjectAccessReview' };
  const { status } = await kube.request<{ status?: { allowed?: boolean } }>({
    method: 'POST',
    path: '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews',
    body: { ...kind, spec: { resourceAttributes } },
  });
  return status?.allowed === true;
}

function fixOf(error: unknown): string {
  if (isKubeError(error, 'api-unserved')) return 'use Kubernetes 1.34 or newer';
  if (isKubeError(error, 'api-unauthorized', 'api-forbidden')) return 'renew the credentials of the driver';
  return 'check the network between this node and the API server, and the address in the kubeconfig';
}
