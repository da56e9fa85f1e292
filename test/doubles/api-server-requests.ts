import { applyPatch } from './api-server-patch.ts';
import { ApiStatusError } from './api-server-status.ts';
import {
  type KubeObject,
  type ObjectInput,
  type ObjectStore,
  type Resource,
  resources,
  type StoreChange,
} from './api-server-store.ts';

/** Versions of resource.k8s.io that can be served, newest first. All have the same shape here. */
export const draVersions = ['v1', 'v1beta2', 'v1beta1'] as const;
export type DraVersion = (typeof draVersions)[number];

/** A request, however it has arrived. */
export interface ApiRequest {
  method: string;
  /** Path without the query, e.g. `/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c`. */
  path: string;
  query?: Readonly<Record<string, string>> | undefined;
  /** Of a patch. */
  contentType?: string | undefined;
  body?: unknown;
}

/** A CustomResourceDefinition that is being deleted, or is not there. */
export type DefinitionState = 'terminating' | 'missing';

/** A verb on a resource; `resource` has the subresource after a slash: `resourceclaims/status`. */
export interface DeniedAccess {
  verb: string;
  resource: string;
  /** Default: all objects, as in a review without a name. */
  name?: string;
}

/** The objects of a list or a watch. */
export interface Selection {
  resource: Resource;
  selects: (object: KubeObject) => boolean;
}

/** One line of a watch. */
export interface ApiWatchEvent {
  type: 'ADDED' | 'MODIFIED' | 'DELETED';
  object: KubeObject;
}

/** The target in the path of a request. */
interface Target {
  resource: Resource;
  namespace: string | undefined;
  /** `undefined`: the collection. */
  name: string | undefined;
}

const accessReviews = '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews';

/** What the API server does with requests: reads and writes of the store. Behind HTTP for the real client, and in the simulation. */
export class ApiRequests {
  /** Access that a SelfSubjectAccessReview denies. */
  readonly denied: DeniedAccess[] = [];
  /** Minor version of Kubernetes 1.x. */
  minorVersion = 36;
  /** Versions of resource.k8s.io that are served now. */
  draVersions: readonly DraVersion[] = draVersions;
  /** State of definitions by the plural of their kind; those that are not here are served. */
  readonly definitions = new Map<string, DefinitionState>();
  readonly #store: ObjectStore;

  constructor(store: ObjectStore) {
    this.#store = store;
  }

  /** The answer to a request other than a watch. @throws ApiStatusError */
  answer({ method, path, query = {}, contentType, body }: ApiRequest): object {
    if (path === '/version')
      return { major: '1', minor: `${this.minorVersion}`, gitVersion: `v1.${this.minorVersion}.0-double` };
    if (path === accessReviews) return this.#reviewAccess(body as ReviewedAccess);
    const [, groupVersion] = /^\/apis\/([^/]+\/[^/]+)$/.exec(path) ?? [];
    if (groupVersion !== undefined) return this.#discover(groupVersion);
    const target = this.#resolve(path);
    const { resource, namespace, name } = target;
    const store = this.#store;
    if (name === undefined) {
      if (method === 'POST') return store.create(resource, namespace, body as ObjectInput);
      return this.#list(target, query);
    }
    if (method === 'PUT') return store.replace(resource, namespace, name, body as ObjectInput);
    if (method === 'DELETE') {
      const { preconditions } = (body ?? {}) as { preconditions?: { uid?: string; resourceVersion?: string } };
      return store.delete(resource, namespace, name, preconditions);
    }
    // Of one manager, which applies whole fields.
    if (contentType === 'application/apply-patch+yaml') {
      const before = store.find(resource, namespace, name);
      if (path.endsWith('/status')) {
        const { status } = body as { status?: object };
        return store.replace(resource, namespace, name, {
          ...store.get(resource, namespace, name),
          status,
        } as ObjectInput);
      }
      if (before === undefined) return store.create(resource, namespace, body as ObjectInput);
      return store.replace(resource, namespace, name, { ...before, ...(body as ObjectInput) });
    }
    const current = store.get(resource, namespace, name);
    if (method === 'GET') return current;
    return store.replace(resource, namespace, name, applyPatch(current, contentType, body));
  }

  /** What a request for a list or a watch selects. @throws ApiStatusError 404 */
  selection({ path, query = {} }: Pick<ApiRequest, 'path' | 'query'>): Selection {
    return selectionOf(this.#resolve(path), query);
  }

  #list(target: Target, query: Readonly<Record<string, string>>): object {
    const { resource, namespace } = target;
    const all = this.#store.list(resource, namespace).filter(selectionOf(target, query).selects);
    const from = Number(query.continue ?? 0);
    const to = from + Number(query.limit ?? all.length);
    const next = to < all.length ? { continue: String(to) } : {};
    const metadata = { resourceVersion: String(this.#store.resourceVersion), ...next };
    return { kind: `${resource.kind}List`, metadata, items: all.slice(from, to) };
  }

  /** Source: apiextensions-apiserver, `DiscoveryController.sync`. */
  #discover(groupVersion: string): object {
    const served = resources.filter(({ group, version = 'v1', plural }) => {
      return `${group}/${version}` === groupVersion && this.definitions.get(plural) !== 'missing';
    });
    if (served.length === 0) throw new ApiStatusError(404, `nothing serves ${groupVersion}`);
    const listed = served.map(({ plural, kind, namespaced }) => {
      const verbs = ['delete', 'deletecollection', 'get', 'list', 'watch'];
      if (this.definitions.get(plural) !== 'terminating') verbs.push('create', 'patch', 'update');
      return { name: plural, kind, namespaced, verbs };
    });
    return { kind: 'APIResourceList', apiVersion: 'v1', groupVersion, resources: listed };
  }

  #reviewAccess(review: ReviewedAccess): object {
    const { verb, resource, subresource, name } = review.spec.resourceAttributes;
    const full = subresource === undefined ? resource : `${resource}/${subresource}`;
    const isDenied = this.denied.some((each) => each.verb === verb && each.resource === full && each.name === name);
    return { ...review, status: { allowed: !isDenied } };
  }

  /** @throws ApiStatusError 404 when the resource is not served */
  #resolve(path: string): Target {
    const [root, ...steps] = path
      .split('/')
      .filter((step) => step !== '')
      .map(decodeURIComponent);
    const group = root === 'api' ? '' : steps.shift();
    const version = steps.shift() as DraVersion;
    const namespace = steps[0] === 'namespaces' ? steps.splice(0, 2)[1] : undefined;
    const [plural, name] = steps;
    const resource = resources.find((each) => each.group === group && each.plural === plural);
    const { version: served = 'v1' } = resource ?? {};
    const isServed = group === 'resource.k8s.io' ? this.draVersions.includes(version) : version === served;
    const isMissing = plural !== undefined && this.definitions.get(plural) === 'missing';
    if (resource === undefined || !isServed || isMissing) throw new ApiStatusError(404, `nothing serves ${path}`);
    return { resource, namespace, name };
  }
}

/** To a watch with a selector, an object that starts to match was added, and one that stops matching was deleted. */
export function watchEventOf(
  selection: Selection,
  { resource, before, after }: StoreChange,
): ApiWatchEvent | undefined {
  if (resource !== selection.resource) return undefined;
  const wasSelected = before !== undefined && selection.selects(before);
  if (after !== undefined && selection.selects(after)) {
    return { type: wasSelected ? 'MODIFIED' : 'ADDED', object: after };
  }
  return wasSelected ? { type: 'DELETED', object: after ?? before } : undefined;
}

interface ReviewedAccess {
  spec: { resourceAttributes: { verb: string; resource: string; subresource?: string; name?: string } };
}

const labelsOf = ({ metadata }: KubeObject) => (metadata.labels ?? {}) as Record<string, string>;

/** Selectors are lists of `field=value` and `label=value` here, or with `!=`. */
function selectionOf({ resource, namespace }: Target, query: Readonly<Record<string, string>>): Selection {
  const { fieldSelector = '', labelSelector = '' } = query;
  const parse = (selector: string) =>
    selector.split(',').flatMap((term) => {
      const [, name = '', isOther, value = ''] = /^(.*?)(!?)=(.*)$/.exec(term) ?? [];
      return term === '' ? [] : [{ name, value, isWanted: isOther === '' }];
    });
  const [terms, labels] = [parse(fieldSelector), parse(labelSelector)];
  return {
    resource,
    selects: (object) =>
      (namespace === undefined || object.metadata.namespace === namespace) &&
      terms.every(({ name, value, isWanted }) => (valueAt(object, name) === value) === isWanted) &&
      labels.every(({ name, value, isWanted }) => (labelsOf(object)[name] === value) === isWanted),
  };
}

function valueAt(object: KubeObject, field: string): unknown {
  return field
    .split('.')
    .reduce<unknown>((value, step) => (value as Record<string, unknown> | undefined)?.[step], object);
}
