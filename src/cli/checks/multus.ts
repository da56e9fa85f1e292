import { isKubeError, type KubeClient, listAll, ResourceApi } from '../../framework/kube/index.ts';
import type { ResourceSlice } from '../../framework/resourceslice/index.ts';
import { explain } from '../../lib/errors.ts';
import { printable } from '../../lib/printable.ts';
import { ok, type Verdict, warning } from '../finding.ts';
import {
  alternativesOf,
  bothOf,
  type Fields,
  fieldsOf,
  isInjector,
  isObserved,
  keyOf,
  listOf,
  type MultusErrorCode,
  networksOf,
  pageOf,
  resourceOf,
  selectorsOf,
  selectsUnnamed,
} from '../multus/contract.ts';
import type { DeviceKind } from '../selected-kind.ts';

const resourceAttribute = 'k8s.cni.cncf.io/resourceName';

/** Objects of the cluster that the checks compare. */
interface Facts {
  /** Resource names of networks with a device, by `namespace/name` of the network. */
  networks: Map<string, string>;
  /** DeviceClasses that leave the attachment to another component. */
  classes: Fields[];
  slices: ResourceSlice[];
}

/**
 * Checks whether claims meet the expectations of Multus. Returns no verdicts if no network has a device, or if Multus is not
 * installed.
 */
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
    ...(await unnamedIn(facts, resources)),
    ...(await unknownIn(facts, offered, kube)),
    ...(ours.length === 0 ? [] : await injectionsIn(facts, new Set(ours), kube)),
  ];
  return found.length > 0 ? found : [ok(`${ours.length} networks get devices of ${driver}`)];
}

/**
 * Reads the networks. @param isUsed whether Multus seems to attach devices of claims: then failing to read the networks is an
 * error
 */
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
    // If Multus is not installed, the driver's role may lack the permission.
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

interface FoundDevice {
  device: string;
  kind: DeviceKind | undefined;
  resource: string | undefined;
}

function devicesIn({ slices }: Facts): FoundDevice[] {
  return slices.flatMap(({ spec: { pool, devices = [] } }) =>
    devices.map(({ name, attributes = {} }) => {
      const textOf = (attribute: string) => Object(attributes[attribute]).string as string | undefined;
      const kind = textOf('kind') as DeviceKind | undefined;
      return { device: `${pool.name}/${name}`, kind, resource: textOf(resourceAttribute) };
    }),
  );
}

function finding(code: MultusErrorCode, message: string, fix: string): Verdict {
  return warning(message, `${fix} (${pageOf(code)})`);
}

/** A request of a template, or a DeviceClass, with its CEL. */
interface Selection {
  what: string;
  expression: string;
}

/** Finds classes, or a template of each, that select devices without a resource name. */
async function unnamedIn(facts: Facts, resources: ResourceApi): Promise<Verdict[]> {
  const devices = devicesIn(facts).filter(({ resource }) => resource === undefined);
  const ofKinds = [...Map.groupBy(devices, ({ kind }) => kind)].map(([kind, [first]]) => ({
    kind,
    device: first?.device,
  }));
  const unnamed = ({ expression }: Selection) => ofKinds.find(({ kind }) => selectsUnnamed(expression, kind))?.device;
  const open = facts.classes.map(selectionOf).filter((each) => unnamed(each) !== undefined);
  if (open.length === 0) return [];
  const templates = await listAll<Fields>((query) => resources.list({ path: 'resourceclaimtemplates', query }));
  return facts.classes.flatMap((each) => {
    const of = selectionsOf(each, templates).find((selection) => unnamed(selection) !== undefined);
    if (of === undefined) return [];
    const why = `${of.what}, whose devices Multus attaches, also selects ${unnamed(of)}, which has no ${resourceAttribute}`;
    const fix = 'set resourceName in the policy for all these devices, or select by it in class or claim';
    return [finding('multus-device-unnamed', why, fix)];
  });
}

function selectionOf({ metadata, spec }: Fields): Selection {
  return { what: `DeviceClass ${fieldsOf(metadata).name}`, expression: selectorsOf(fieldsOf(spec)) };
}

/**
 * Returns the selections of a class: the requests of templates for it, whose CEL can select fewer devices, or else the class
 * itself.
 */
function selectionsOf(of: Fields, templates: readonly Fields[]): Selection[] {
  const own = selectionOf(of);
  // Claims of extended resources have no selectors of their own.
  if (fieldsOf(of.spec).extendedResourceName !== undefined) return [own];
  const found = templates.flatMap((template) => {
    const { devices } = fieldsOf(fieldsOf(template.spec).spec);
    const requests = listOf(fieldsOf(devices).requests).map(fieldsOf);
    return requests.flatMap((request) =>
      alternativesOf(request)
        .filter(({ className }) => className === fieldsOf(of.metadata).name)
        .map(({ selectors }) => ({
          what: `request ${request.name} of ResourceClaimTemplate ${keyOf(template)}`,
          expression: bothOf(own.expression, selectors),
        })),
    );
  });
  return found.length === 0 ? [own] : found;
}

/** Finds networks with a resource name that no device has. Ignores resources of device plugins. */
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

/** Finds network-resources-injector. If it is not installed, finds pods with limits that it added before. */
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
