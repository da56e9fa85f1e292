import { explain } from '../../errors.ts';
import { isKubeError, type KubeClient, ResourceApi } from '../../kube/index.ts';
import { type Finding, ok, problem, warning } from '../finding.ts';

const check = 'API server';
/** A server that is there answers this at once. */
const timeoutMs = 5_000;

interface Permission {
  group: string;
  /** With the subresource behind a slash. */
  resource: string;
  verbs: string[];
  /** What does not work without it. */
  effect: string;
  level: typeof problem;
}

const permissions: Permission[] = [
  {
    ...{ group: 'resource.k8s.io', resource: 'resourceslices', level: problem },
    ...{ verbs: ['get', 'list', 'watch', 'create', 'update', 'delete'], effect: 'devices are not offered' },
  },
  {
    ...{ group: 'resource.k8s.io', resource: 'resourceclaims', level: problem },
    ...{ verbs: ['get'], effect: 'claims cannot be prepared' },
  },
  { ...{ group: '', resource: 'nodes', level: problem }, verbs: ['get'], effect: 'devices are not offered' },
  {
    ...{ group: 'resource.k8s.io', resource: 'resourceclaims/status', level: warning },
    ...{ verbs: ['patch'], effect: 'claims do not tell what their devices are like' },
  },
  {
    ...{ group: 'events.k8s.io', resource: 'events', level: warning },
    ...{ verbs: ['create', 'patch'], effect: 'pods and claims get no events' },
  },
];

/**
 * Whether the API server can be reached, has the API of claims, and allows what the driver does.
 * @param open `undefined` when neither a kubeconfig nor a service account is there
 */
export async function checkApiServer(open: () => KubeClient | undefined): Promise<Finding[]> {
  let kube: KubeClient | undefined;
  try {
    kube = open();
  } catch (error) {
    return [problem(check, explain(error), 'give a kubeconfig that can be read: --kubeconfig')];
  }
  if (kube === undefined) {
    const message = 'not looked at: there is neither a kubeconfig nor a service account';
    return [warning(check, message, 'give --kubeconfig, or run this in the pod of the driver')];
  }
  using client = kube;
  try {
    const { gitVersion } = await client.request<{ gitVersion: string }>({ method: 'GET', path: '/version', timeoutMs });
    const version = await findResourceVersion(client);
    const denied = await findDenied(client);
    return [ok(check, `Kubernetes ${gitVersion}, resource.k8s.io/${version}`), ...denied];
  } catch (error) {
    return [problem(check, explain(error), fixOf(error))];
  }
}

/** @throws KubeError `api-unserved` */
async function findResourceVersion(kube: KubeClient): Promise<string> {
  const api = new ResourceApi(kube);
  try {
    await api.list({ path: 'resourceslices', query: { limit: '1' } });
  } catch (error) {
    // Told as a permission; whoever is refused knows that it is served.
    if (!isKubeError(error, 'api-forbidden')) throw error;
  }
  return api.version;
}

async function findDenied(kube: KubeClient): Promise<Finding[]> {
  const findings = await Promise.all(
    permissions.map(async ({ group, resource, verbs, effect, level }) => {
      const allowed = await Promise.all(verbs.map((verb) => mayDo(kube, group, resource, verb)));
      const missing = verbs.filter((_, index) => !allowed[index]);
      if (missing.length === 0) return [];
      const message = `may not ${missing.join(', ')} ${resource}: ${effect}`;
      return [level('permissions', message, 'compare the role of the driver with deploy/manifests/netdra.yaml')];
    }),
  );
  const denied = findings.flat();
  return denied.length > 0 ? denied : [ok('permissions', 'all that the driver needs of the API server')];
}

/** Source: authorization.k8s.io/v1 `SelfSubjectAccessReview`. */
async function mayDo(kube: KubeClient, group: string, name: string, verb: string): Promise<boolean> {
  const [resource, subresource] = name.split('/');
  const resourceAttributes = { group, resource, verb, ...(subresource === undefined ? {} : { subresource }) };
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
  return 'look at the network between this node and the API server, and at the address in the kubeconfig';
}
