import { isKubeError, type KubeClient, listAll, ResourceApi } from '../../framework/kube/index.ts';
import type { ResourceSlice } from '../../framework/resourceslice/index.ts';
import { explain } from '../../lib/errors.ts';
import { printable } from '../../lib/printable.ts';
import { ok, type Verdict, warning } from '../finding.ts';
import {
  type Fields,
  fieldsOf,
  isInjector,
  isObserved,
  keyOf,
  limitsDevices,
  listOf,
  type MultusErrorCode,
  networksOf,
  pageOf,
  resourceOf,
  selectorsOf,
} from '../multus/contract.ts';

const resourceAttribute = 'k8s.cni.cncf.io/resourceName';

/** Facts of the cluster. */
interface Facts {
  /** Networks with a device, by `namespace/name`. */
  networks: Map<string, string>;
  /** Classes that leave the attachment to another component. */
  classes: Fields[];
  slices: ResourceSlice[];
}

/** Checks what Multus expects of claims. No verdicts if no network has a device, or Multus is not installed. */
export async function checkMultus(driver: string, kube: KubeClient): Promise<Verdict[]> {
  try {
    return await judge(driver, kube);
  } catch (error) {
    return [warning(`cannot be checked: ${explain(error)}`, 'pass the kubeconfig of an administrator: --kubeconfig')];
  }
}

async function judge(driver: string, kube: KubeClient): Promise<Verdict[]> {
  const resources = new ResourceApi(kube);
  const all = await listAll<Fields>((query) => resources.list({ path: 'deviceclasses', query }));
  const classes = all.filter(({ spec }) =>
    listOf(fieldsOf(spec).config).some((each) => isObserved(fieldsOf(each), driver)),
  );
  const networks = await readNetworks(kube, classes.length > 0);
  if (networks.size === 0) return [];
  const fieldSelector = `spec.driver=${driver}`;
  const slices = await listAll<ResourceSlice>((page) =>
    resources.list({ path: 'resourceslices', query: { ...page, fieldSelector } }),
  );
  const facts = { networks, classes, slices };
  const offered = new Set(devicesIn(facts).map(({ resource }) => resource));
  const ours = [...networks.values()].filter((resource) => offered.has(resource));
  const found = [
    ...unnamedIn(facts),
    ...(await unknownIn(facts, offered, kube)),
    ...(ours.length === 0 ? [] : await injectionsIn(facts, new Set(ours), kube)),
  ];
  return found.length > 0 ? found : [ok(`${ours.length} networks get devices of ${driver}`)];
}

/** @param isUsed whether Multus seems to attach devices of claims: then it matters that networks cannot be read */
async function readNetworks(kube: KubeClient, isUsed: boolean): Promise<Map<string, string>> {
  try {
    const definitions = await list(kube, '/apis/k8s.cni.cncf.io/v1/network-attachment-definitions');
    return new Map(
      definitions.flatMap((each) => {
        const resource = resourceOf(each);
        return resource === undefined ? [] : [[keyOf(each), resource] as const];
      }),
    );
  } catch (error) {
    // Without Multus the role of the driver may not read them either.
    if (isKubeError(error, 'api-unserved', 'api-not-found')) return new Map();
    if (isKubeError(error, 'api-forbidden') && !isUsed) return new Map();
    throw error;
  }
}

function list(kube: KubeClient, path: string, isWanted: (object: Fields) => boolean = () => true): Promise<Fields[]> {
  return listAll<Fields>(async (query) => {
    const page = await kube.request<{ metadata: object; items: Fields[] }>({ method: 'GET', path, query });
    return { ...page, items: page.items.filter(isWanted) };
  });
}

function devicesIn({ slices }: Facts): { device: string; resource: string | undefined }[] {
  return slices.flatMap(({ spec: { pool, devices = [] } }) =>
    devices.map(({ name, attributes = {} }) => {
      const attribute = attributes[resourceAttribute];
      const resource = attribute !== undefined && 'string' in attribute ? attribute.string : undefined;
      return { device: `${pool.name}/${name}`, resource };
    }),
  );
}

function finding(code: MultusErrorCode, message: string, fix: string): Verdict {
  return warning(message, `${fix} (${pageOf(code)})`);
}

function unnamedIn(facts: Facts): Verdict[] {
  const without = devicesIn(facts).find(({ resource }) => resource === undefined);
  if (without === undefined) return [];
  return facts.classes
    .filter(({ spec }) => !limitsDevices(selectorsOf(fieldsOf(spec))))
    .map(({ metadata }) => {
      const name = `DeviceClass ${fieldsOf(metadata).name}`;
      const why = `${name}, whose devices Multus attaches, also selects ${without.device}, which has no ${resourceAttribute}`;
      return finding(
        'multus-device-unnamed',
        why,
        'set resourceName in the policy for all these devices, or select by it in the class',
      );
    });
}

/** A resource that no device has may be that of a device plugin. */
async function unknownIn({ networks }: Facts, offered: ReadonlySet<unknown>, kube: KubeClient): Promise<Verdict[]> {
  const missing = [...networks].filter(([, resource]) => !offered.has(resource));
  if (missing.length === 0) return [];
  const nodes = await list(kube, '/api/v1/nodes');
  const ofPlugins = new Set(nodes.flatMap(({ status }) => Object.keys(fieldsOf(fieldsOf(status).allocatable))));
  return missing.flatMap(([network, resource]) => {
    if (ofPlugins.has(resource)) return [];
    const why = `no device has the resource name ${printable(resource, 128)} of network ${network}`;
    return [finding('multus-resource-unknown', why, 'set this resourceName in the policy, or correct the network')];
  });
}

/** Looks for network-resources-injector, and if it is gone, for pods that still have what it added. */
async function injectionsIn({ networks }: Facts, ours: ReadonlySet<string>, kube: KubeClient): Promise<Verdict[]> {
  const fix = 'switch network-resources-injector off, and create the pods anew';
  const path = '/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations';
  const [injector] = await list(kube, path, isInjector);
  if (injector !== undefined) {
    const name = fieldsOf(injector.metadata).name;
    const why = `MutatingWebhookConfiguration ${name} adds a network's device to the limits of pods whose claim already has it`;
    return [finding('multus-injector', why, fix)];
  }
  const injected = (pod: Fields) => {
    const { namespace = 'default' } = fieldsOf(pod.metadata);
    const wanted = networksOf(pod, `${namespace}`).map((each) => networks.get(each));
    const { containers, resourceClaims } = fieldsOf(pod.spec);
    const limits = listOf(containers).flatMap((each) =>
      Object.keys(fieldsOf(fieldsOf(fieldsOf(each).resources).limits)),
    );
    return listOf(resourceClaims).length > 0 && limits.some((each) => ours.has(each) && wanted.includes(each));
  };
  const [pod, ...others] = await list(kube, '/api/v1/pods', injected);
  if (pod === undefined) return [];
  const more = others.length === 0 ? '' : ` and ${others.length} more`;
  const why = `a network's device is requested twice, in a claim and in limits, by pod ${keyOf(pod)}${more}`;
  return [finding('multus-injector', why, fix)];
}
