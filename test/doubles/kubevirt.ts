import { join } from 'node:path';
import * as z from 'zod';

/** Files of virt-launcher's container. */
export interface LauncherFiles {
  /** Names in a folder; none if there is no such folder. */
  list(dir: string): string[] | Promise<string[]>;
  read(path: string): string | Promise<string>;
}

/** An entry of `spec.resourceClaims` of a virtual machine instance. */
export interface VmiClaim {
  name: string;
  resourceClaimName?: string;
}

/** What a network, GPU or host device of a virtual machine instance names. */
export interface ClaimRequest {
  claimName: string;
  requestName: string;
}

const base = '/var/run/kubernetes.io/dra-device-attributes';
const supportedVersion = 'metadata.resource.k8s.io/v1alpha1';

/** Libvirt's form of an address: a domain of four digits, and functions up to 7. */
const pciAddress = /^[\da-f]{4}:[\da-f]{2}:[\da-f]{2}\.[0-7]$/i;

/** Fields that KubeVirt's Go types have. It ignores all others, and fails if one of these has another JSON type. */
const attributeSchema = z.object({
  // Of 64 bits, which JSON.parse rounds.
  int: z.number().refine(Number.isInteger).optional(),
  bool: z.boolean().optional(),
  string: z.string().optional(),
  version: z.string().optional(),
});
const deviceSchema = z.object({
  driver: z.string(),
  pool: z.string(),
  name: z.string(),
  attributes: z.record(z.string(), attributeSchema).optional(),
  networkData: z
    .object({
      interfaceName: z.string().optional(),
      ips: z.array(z.string()).optional(),
      hardwareAddress: z.string().optional(),
    })
    .optional(),
});
const documentSchema = z.object({
  metadata: z.object({ name: z.string(), namespace: z.string(), uid: z.string(), generation: z.int() }),
  podClaimName: z.string().optional(),
  requests: z.array(z.object({ name: z.string(), devices: z.array(deviceSchema).optional() })),
});
export type LauncherDocument = z.infer<typeof documentSchema>;

/**
 * Returns the PCI address that KubeVirt's virt-launcher gives libvirt for a request of a claim. It looks once, after the
 * container has started, as user 107. This is its behavior in our words, without any code of ours that writes the files.
 * @throws Error where virt-launcher gives up, and the virtual machine does not start
 * Source: KubeVirt, pkg/dra/utils.go, pkg/dra/metadata/types.go, pkg/util/hardware/hw_utils.go.
 */
export async function pciAddressForLibvirt(
  files: LauncherFiles,
  claims: readonly VmiClaim[],
  { claimName, requestName }: ClaimRequest,
): Promise<string> {
  const claim = claims.find(({ name }) => name === claimName);
  if (claim === undefined) throw new Error(`the virtual machine has no claim ${claimName}`);
  const { resourceClaimName } = claim;
  const folder = resourceClaimName ? `resourceclaims/${resourceClaimName}` : `resourceclaimtemplates/${claimName}`;
  const dir = join(base, folder, requestName);
  const names = (await files.list(dir)).filter((name) => name.endsWith('-metadata.json') && !name.startsWith('.'));
  const [name] = names;
  if (name === undefined || names.length > 1) throw new Error(`${names.length} files in ${dir}, one is supported`);
  const { requests } = decodeForLauncher(await files.read(join(dir, name)));
  const request = requests.find((each) => each.name === requestName);
  if (request === undefined) {
    throw new Error(`no request ${requestName}, only ${requests.map((each) => each.name).join(', ')}`);
  }
  const [device, ...more] = request.devices ?? [];
  if (device === undefined || more.length > 0) {
    throw new Error(`request ${requestName} has ${request.devices?.length ?? 0} devices, one is supported`);
  }
  // A host device with this attribute is a mediated one.
  if (device.attributes?.mdevUUID !== undefined) throw new Error(`${device.name} is a mediated device`);
  const address = device.attributes?.['resource.kubernetes.io/pciBusID']?.string;
  if (!address) throw new Error(`${device.name} has no pciBusID`);
  if (!pciAddress.test(address)) throw new Error(`libvirt has no form for ${address}`);
  return address;
}

/** Decodes the first object of the version that KubeVirt knows. Objects of others may precede it, but need a version. */
export function decodeForLauncher(text: string): LauncherDocument {
  const skipped: string[] = [];
  for (const object of objectsOf(text)) {
    const { apiVersion } = z.object({ apiVersion: z.string().min(1) }).parse(object);
    if (apiVersion === supportedVersion) return documentSchema.parse(object);
    skipped.push(apiVersion);
  }
  throw new Error(`no supported version among ${skipped.join(', ') || 'no objects'}`);
}

/** Splits a stream of JSON objects by their braces. */
function objectsOf(text: string): unknown[] {
  const tokens = /"(?:[^"\\]|\\.)*"|[{}]/g;
  const objects: unknown[] = [];
  let [depth, start] = [0, 0];
  for (const { 0: token, index } of text.matchAll(tokens)) {
    if (token === '{') depth++;
    if (token === '}' && --depth === 0) {
      objects.push(JSON.parse(text.slice(start, index + 1)));
      start = index + 1;
    }
  }
  const rest = text.slice(start).trim();
  if (rest !== '') throw new Error(`the file ends within an object: ${rest.slice(0, 40)}`);
  return objects;
}
