import { apiVersionOf, draVersions, type ResourceType, resourceTypes } from './api-server-resources.ts';

const objectVerbs = ['create', 'delete', 'deletecollection', 'get', 'list', 'patch', 'update', 'watch'];
const statusVerbs = ['get', 'patch', 'update'];

/**
 * What clients ask before they ask for objects: `/api`, `/apis`, the resources of a group version, `/version`.
 * @returns `undefined` when the path is none of these or the version is not served
 */
export function serveDiscovery(
  pathname: string,
  isServed: (type: ResourceType, version: string) => boolean,
): object | undefined {
  const path = pathname.replace(/\/$/, '');
  if (path === '/api') return { kind: 'APIVersions', versions: ['v1'] };
  if (path === '/apis') return listGroups(isServed);
  if (path === '/version') return { major: '1', minor: '36', gitVersion: 'v1.36.0-double' };
  return listResources(path.replace(/^\/apis?\//, ''), isServed);
}

function listGroups(isServed: (type: ResourceType, version: string) => boolean): object {
  const names = new Set(resourceTypes.map(({ group }) => group).filter((group) => group !== ''));
  const groups = [...names].map((name) => {
    const type = resourceTypes.find(({ group }) => group === name) as ResourceType;
    const versions = draVersions
      .filter((version) => isServed(type, version))
      .map((version) => ({ groupVersion: `${name}/${version}`, version }));
    return { name, versions, preferredVersion: versions[0] };
  });
  return { kind: 'APIGroupList', apiVersion: 'v1', groups: groups.filter(({ versions }) => versions.length > 0) };
}

function listResources(
  groupVersion: string,
  isServed: (type: ResourceType, version: string) => boolean,
): object | undefined {
  const resources = resourceTypes
    .filter((type) =>
      draVersions.some((version) => apiVersionOf(type, version) === groupVersion && isServed(type, version)),
    )
    .flatMap(({ plural, kind, namespaced, hasStatus }) => {
      const plain = { name: plural, singularName: '', namespaced, kind, verbs: objectVerbs };
      return hasStatus ? [plain, { ...plain, name: `${plural}/status`, verbs: statusVerbs }] : [plain];
    });
  return resources.length === 0 ? undefined : { kind: 'APIResourceList', apiVersion: 'v1', groupVersion, resources };
}
