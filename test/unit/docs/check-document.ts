import { loadAllYaml } from '@kubernetes/client-node';
import type * as z from 'zod';
import { networkAddressPoolSchema } from '../../../src/driver/api/address-pool.ts';
import { classConfigSchema } from '../../../src/driver/api/class-config.ts';
import { findContradictions } from '../../../src/driver/api/config-rules.ts';
import { networkDevicePolicySchema } from '../../../src/driver/api/policy-object.ts';
import { vfConfigSchema } from '../../../src/driver/api/vf-config.ts';
import type { VfConfig } from '../../../src/driver/model/index.ts';
import { parseCniNetwork } from '../../../src/node/cni/index.ts';
import { inventoryPolicySchema } from '../../../src/node/inventory/index.ts';
import { testDriver } from '../../doubles/objects.ts';
import { findTypeProblems } from '../deploy/kubernetes-types.ts';
import { checkValues, defaultValues } from '../deploy/values-schema.ts';

/** Kinds of Kubernetes that pages have, with the names that the API client has for their types. */
const kubernetesTypes: Record<string, string> = {
  'apps/v1 DaemonSet': 'V1DaemonSet',
  'apps/v1 Deployment': 'V1Deployment',
  'node.k8s.io/v1 RuntimeClass': 'V1RuntimeClass',
  'resource.k8s.io/v1 DeviceClass': 'V1DeviceClass',
  'resource.k8s.io/v1 ResourceClaim': 'ResourceV1ResourceClaim',
  'resource.k8s.io/v1 ResourceClaimTemplate': 'V1ResourceClaimTemplate',
  'resource.k8s.io/v1 ResourceSlice': 'V1ResourceSlice',
  'v1 ConfigMap': 'V1ConfigMap',
  'v1 Namespace': 'V1Namespace',
  'v1 Pod': 'V1Pod',
  'v1 ResourceQuota': 'V1ResourceQuota',
};

/** Kinds of other projects, which pages show as what users come from. The only check is that they are objects. */
const foreignKinds = [
  'k8s.cni.cncf.io/v1 NetworkAttachmentDefinition',
  'sriovnetwork.k8snetworkplumbingwg.io/v1alpha1 DeviceAttributes',
  'sriovnetwork.k8snetworkplumbingwg.io/v1alpha1 SriovResourcePolicy',
  'sriovnetwork.k8snetworkplumbingwg.io/v1alpha1 VfConfig',
  'kind.x-k8s.io/v1alpha4 Cluster',
  // Of a device beside a NIC in one claim.
  'gpu.example.com/v1 GpuConfig',
  // Of a virtual machine, which docs/cnf-developers.md shows.
  'kubevirt.io/v1 VirtualMachineInstance',
];

/** Kinds of other projects that install the chart, with the place of its values. */
const chartValues: Record<string, string> = {
  'argoproj.io/v1alpha1 Application': 'spec.source.helm.valuesObject',
  'helm.toolkit.fluxcd.io/v2 HelmRelease': 'spec.values',
};

function valueAt(object: unknown, path: string): unknown {
  return path.split('.').reduce<unknown>((each, key) => (each as Record<string, unknown>)?.[key], object);
}

interface SomeObject {
  apiVersion?: unknown;
  kind?: unknown;
}

/** The values that a page has for the chart. @param path `a.b=c` */
export function findValuePathProblem(setting: string): string | undefined {
  const [path = '', text = ''] = setting.split(/=(.*)/s);
  if (valueAt(defaultValues, path) === undefined) return `the chart has no value ${path}`;
  const fits = (leaf: unknown) => {
    const nested = path.split('.').reduceRight<unknown>((value, key) => ({ [key]: value }), leaf);
    return checkValues(nested).success;
  };
  // Helm makes numbers of digits, and truth values of their words.
  const isTaken = fits(text) || (/^(\d+|true|false)$/.test(text) && fits(JSON.parse(text)));
  return isTaken ? undefined : `the chart does not take ${setting}`;
}

/**
 * What is wrong with the YAML or JSON of a block.
 * @param info `yaml`, `json`, or `yaml values` for the chart's values
 */
export function findDocumentProblems(info: string, content: string): string[] {
  let documents: unknown[];
  try {
    documents = info === 'json' ? [JSON.parse(content)] : loadAllYaml(content);
  } catch (error) {
    return [(error as Error).message];
  }
  if (documents.length === 0) return ['there is nothing in it'];
  if (info === 'yaml values') return documents.flatMap((values) => describe(checkValues(values)));
  return documents.flatMap((document) => findObjectProblems(document as SomeObject));
}

function findObjectProblems(object: SomeObject): string[] {
  if ('cniVersion' in object) {
    parseCniNetwork(object, 'the page');
    return [];
  }
  const name = `${object?.apiVersion} ${object?.kind}`;
  if (name === 'netdra.dev/v1alpha1 VFConfig') return findVfConfigProblems(object);
  if (name === 'netdra.dev/v1alpha1 InventoryPolicy') return describe(inventoryPolicySchema.safeParse(object));
  if (name === 'netdra.dev/v1alpha1 NetworkDevicePolicy') return describe(networkDevicePolicySchema.safeParse(object));
  if (name === 'netdra.dev/v1alpha1 NetworkAddressPool') return describe(networkAddressPoolSchema.safeParse(object));
  const valuesPath = chartValues[name];
  if (valuesPath !== undefined) return describe(checkValues(valueAt(object, valuesPath)));
  const type = kubernetesTypes[name];
  if (type !== undefined) return [...findTypeProblems(object, type), ...findOpaqueProblems(object, schemaFor(object))];
  return foreignKinds.includes(name) ? [] : [`no check for objects of ${name}: see test/unit/docs/check-document.ts`];
}

type ConfigSchema = typeof vfConfigSchema | typeof classConfigSchema;
const schemaFor = ({ kind }: SomeObject) => (kind === 'DeviceClass' ? classConfigSchema : vfConfigSchema);

function findVfConfigProblems(object: object, schema: ConfigSchema = vfConfigSchema): string[] {
  const result = schema.safeParse(object);
  if (!result.success) return describe(result);
  const { apiVersion: _apiVersion, kind: _kind, ...config } = result.data;
  return findContradictions(config as VfConfig);
}

/** Of the configurations that an object has somewhere in it, for our driver or for others. */
function findOpaqueProblems(value: unknown, schema: ConfigSchema): string[] {
  if (typeof value !== 'object' || value === null) return [];
  const { driver, parameters } = value as { driver?: unknown; parameters?: unknown };
  if (typeof driver === 'string' && typeof parameters === 'object') {
    return driver === testDriver
      ? findVfConfigProblems(parameters as object, schema)
      : findObjectProblems(parameters as SomeObject);
  }
  return Object.values(value).flatMap((inner) => findOpaqueProblems(inner, schema));
}

function describe({ error }: { error?: z.ZodError | undefined }): string[] {
  return (error?.issues ?? []).map(({ path, message }) => `${path.join('.')}: ${message}`);
}
