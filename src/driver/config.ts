import * as z from 'zod';
import { parseCniIpam, parseCniNetwork } from '../cni/index.ts';
import type { AllocatedClaim } from '../kubeletplugin/index.ts';
import { baseRequest } from '../metadata/index.ts';
import { isNetwork, parseCidr } from '../netlink/index.ts';
import { DriverError } from './errors.ts';

const checked = (check: (text: string) => boolean, what: string) =>
  z.string().refine(check, { error: (issue) => `${JSON.stringify(issue.input)} is not ${what}` });

/**
 * What a claim or a DeviceClass may ask for its VFs: opaque parameters of kind `VFConfig`, `netdra.dev/v1alpha1`.
 * Everything is optional; what is absent stays as the VF has it.
 */
export const vfConfigSchema = z.strictObject({
  apiVersion: z.literal('netdra.dev/v1alpha1'),
  kind: z.literal('VFConfig'),
  attach: z
    .enum(['netlink', 'cni', 'observe'])
    .describe(
      'Who moves the VF into the pod: we do, a chain of CNI plugins does, or somebody else has, such as Multus.',
    )
    .optional(),
  cni: z
    .record(z.string(), z.unknown())
    .describe('With attach cni: the network configuration, a list of plugins or a single one.')
    .optional(),
  ipam: z
    .record(z.string(), z.unknown())
    .describe('CNI IPAM plugin that gives addresses and routes: the `ipam` section of a network configuration.')
    .optional(),
  driver: z
    .enum(['kernel', 'vfio-pci'])
    .describe('Kernel driver of the VF: its own one, for a network interface, or vfio-pci, for DPDK.')
    .optional(),
  vf: z
    .strictObject({
      vlan: z.int().min(0).max(4094).describe('VLAN id; 0: no tag.').optional(),
      qos: z.int().min(0).max(7).describe('VLAN priority.').optional(),
      vlanProto: z.enum(['802.1q', '802.1ad']).optional(),
      spoofCheck: z.boolean().optional(),
      trust: z.boolean().optional(),
      linkState: z.enum(['auto', 'enable', 'disable']).optional(),
      minTxRate: z.int().min(0).describe('Mbit/s; 0: no limit.').optional(),
      maxTxRate: z.int().min(0).describe('Mbit/s; 0: no limit.').optional(),
    })
    .describe('Properties that the PF has for the VF.')
    .optional(),
  interfaceName: z
    .string()
    .regex(/^(?!\.{1,2}$)[^\s/:]{1,15}$/, '1 to 15 bytes, no blank, "/" or ":"')
    .describe('Name in the pod. `%d` becomes the index of the device within its request.')
    .optional(),
  mtu: z.int().min(68).max(65_535).describe('MTU in bytes.').optional(),
  macAddress: z
    .string()
    .regex(/^[0-9a-fA-F][02468aceACE](:[0-9a-fA-F]{2}){5}$/, 'six octets with colons, not a multicast address')
    .optional(),
  addresses: z
    .array(checked(isAddress, 'an address with prefix length, such as 192.0.2.7/24'))
    .max(16)
    .describe('Interface addresses with prefix length, IPv4 and IPv6.')
    .optional(),
  routes: z
    .array(
      z.strictObject({
        destination: checked(
          (text) => isAddress(text) && isNetwork(parseCidr(text)),
          'a network with prefix length and no host bits, such as 0.0.0.0/0',
        ),
        gateway: z.union([z.ipv4(), z.ipv6()]).optional(),
      }),
    )
    .optional(),
});

/**
 * What only a DeviceClass may set unless the operator opens it to claims: it can reach beyond the pod, to the node or to
 * the network of others.
 */
export const privilegedFields = ['driver', 'macAddress', 'vf.trust', 'vf.spoofCheck', 'cni', 'ipam'] as const;
export type PrivilegedField = (typeof privilegedFields)[number];

/** The merged settings for one device. */
export type VfConfig = Omit<z.infer<typeof vfConfigSchema>, 'apiVersion' | 'kind'>;

/**
 * The settings for a request: what the class says, then what the claim says, field by field.
 * Source of the scoping rules: resource.k8s.io/v1 `DeviceAllocationConfiguration`.
 * @param open privileged fields that claims may set
 * @throws DriverError `config-invalid` with the path of the field and what is allowed
 */
export function resolveVfConfig(
  driver: string,
  claim: AllocatedClaim,
  request: string,
  open: readonly PrivilegedField[] = [],
): VfConfig {
  const entries = claim.object.status?.allocation?.devices?.config ?? [];
  const applicable = entries.filter(
    ({ opaque, requests }) => opaque?.driver === driver && covers(requests ?? [], request),
  );
  const ordered = ['FromClass', 'FromClaim'].flatMap((source) => applicable.filter((entry) => entry.source === source));
  const merged: VfConfig = {};
  for (const { opaque, source } of ordered) {
    const config = parseVfConfig(claim, source, opaque?.parameters);
    if (source === 'FromClaim') checkPrivileges(claim, config, open);
    const vf = { ...merged.vf, ...config.vf };
    Object.assign(merged, config, Object.keys(vf).length === 0 ? {} : { vf });
  }
  checkTogether(claim, merged);
  return merged;
}

/** What each field allows, and the whole does not. */
function checkTogether(claim: AllocatedClaim, { attach, cni, ipam, driver }: VfConfig): void {
  const subject = `${claim.identity.namespace}/${claim.identity.name}`;
  const refuse = (problem: string) =>
    new DriverError('config-invalid', `claim ${subject}: ${problem}`, { claim: subject });
  if ((attach === 'cni') !== (cni !== undefined)) throw refuse('attach "cni" and cni go together');
  if (ipam !== undefined && (attach ?? 'netlink') !== 'netlink')
    throw refuse(`ipam does not go with attach "${attach}"`);
  if (driver === 'vfio-pci' && (attach ?? 'netlink') !== 'netlink') {
    throw refuse(`driver "vfio-pci" does not go with attach "${attach}": there is no interface to attach`);
  }
  const of = `claim ${subject}`;
  if (cni !== undefined) parseCniNetwork(cni, of, { defaultName: 'netdra' });
  if (ipam !== undefined) parseCniIpam(ipam, of, { name: 'netdra' });
}

function checkPrivileges(
  claim: AllocatedClaim,
  { driver, macAddress, vf, cni, ipam }: VfConfig,
  open: readonly PrivilegedField[],
) {
  const asked: Record<PrivilegedField, boolean> = {
    driver: driver !== undefined,
    macAddress: macAddress !== undefined,
    'vf.trust': vf?.trust === true,
    'vf.spoofCheck': vf?.spoofCheck === false,
    // Plugins run as root on the node, with paths that their configuration chooses.
    cni: cni !== undefined,
    ipam: ipam !== undefined,
  };
  const refused = privilegedFields.filter((field) => asked[field] && !open.includes(field));
  if (refused.length === 0) return;
  const subject = `${claim.identity.namespace}/${claim.identity.name}`;
  throw new DriverError('config-invalid', `claim ${subject} may not set ${refused.join(', ')}`, {
    claim: subject,
    hint: 'set it in a DeviceClass, or let the operator open it with --open-claim-fields',
  });
}

function covers(requests: string[], request: string): boolean {
  return requests.length === 0 || requests.some((each) => each === request || each === baseRequest(request));
}

function parseVfConfig(claim: AllocatedClaim, source: string, parameters: unknown): VfConfig {
  const result = vfConfigSchema.safeParse(parameters);
  if (result.success) {
    const { apiVersion: _apiVersion, kind: _kind, ...config } = result.data;
    return config;
  }
  const subject = `${claim.identity.namespace}/${claim.identity.name}`;
  const origin = source === 'FromClass' ? 'its DeviceClass' : 'the claim';
  const problems = result.error.issues.map(({ path, message }) => `${path.join('.') || 'parameters'}: ${message}`);
  throw new DriverError(
    'config-invalid',
    `invalid VFConfig for claim ${subject}, from ${origin}: ${problems.join('; ')}`,
    {
      claim: subject,
    },
  );
}

function isAddress(text: string): boolean {
  try {
    parseCidr(text);
    return true;
  } catch {
    return false;
  }
}

/**
 * The settings for one of several devices of a request.
 * @throws DriverError `config-invalid` if what can be had only once is asked for several devices
 */
export function configForDevice(config: VfConfig, subject: string, index: number, count: number): VfConfig {
  const { interfaceName } = config;
  const single = (field: string, hint: string) =>
    new DriverError('config-invalid', `${field}: the request of claim ${subject} has ${count} devices`, {
      claim: subject,
      hint,
    });
  if (count > 1) {
    if (config.addresses?.length) throw single('addresses', 'use one request for each device with static addresses');
    if (config.macAddress) throw single('macAddress', 'use one request for each device with a MAC address of its own');
    if (interfaceName && !interfaceName.includes('%d')) throw single('interfaceName', 'put %d into the name');
  }
  return interfaceName === undefined
    ? config
    : { ...config, interfaceName: interfaceName.replace('%d', String(index)) };
}
