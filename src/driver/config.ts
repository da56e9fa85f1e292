import { parseCniIpam, parseCniNetwork } from '../cni/index.ts';
import type { AllocatedClaim } from '../kubeletplugin/index.ts';
import { baseRequest } from '../metadata/index.ts';
import { assertInterfaceName } from '../netlink/index.ts';
import { type VfConfig, vfConfigSchema } from '../state/index.ts';
import { findContradictions } from './config-rules.ts';
import { DriverError } from './errors.ts';
import { checkPrivileges, type PrivilegedField } from './privileges.ts';

/**
 * The settings for a request: what the class says, then what the claim says, field by field; of `vf` and `sysctls` entry
 * by entry. Lists and everything else are replaced as a whole.
 * Source of the scoping rules: resource.k8s.io/v1 `DeviceAllocationConfiguration`.
 * @param open privileged fields that claims may set
 * @throws DriverError `config-invalid` with the path of the field and what is allowed; CniError `cni-config-invalid`
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
  let merged: VfConfig = {};
  for (const { opaque, source } of ordered) {
    const config = parseVfConfig(claim, source, opaque?.parameters);
    if (source === 'FromClaim') checkPrivileges(claim, config, open);
    merged = mergeVfConfigs(merged, config);
  }
  checkWhole(claim, merged);
  return merged;
}

/** What `over` says counts; what it leaves open stays. */
export function mergeVfConfigs(base: VfConfig, over: VfConfig): VfConfig {
  const merged = { ...base, ...over };
  for (const field of ['vf', 'sysctls'] as const) {
    const both = { ...base[field], ...over[field] };
    if (Object.keys(both).length > 0) Object.assign(merged, { [field]: both });
  }
  return merged;
}

/** @throws DriverError `config-invalid` for what each field allows by itself and the whole does not; CniError */
function checkWhole(claim: AllocatedClaim, config: VfConfig): void {
  const problems = findContradictions(config);
  if (problems.length > 0) throw invalidConfig(claim, problems);
  const of = `claim ${claim.identity.namespace}/${claim.identity.name}`;
  if (config.cni !== undefined) parseCniNetwork(config.cni, of, { defaultName: 'netdra' });
  if (config.ipam !== undefined) parseCniIpam(config.ipam, of, { name: 'netdra' });
}

/** @param problems each as `field: what is allowed` */
export function invalidConfig(claim: AllocatedClaim, problems: string[], origin = ''): DriverError {
  const subject = `${claim.identity.namespace}/${claim.identity.name}`;
  const message = `invalid VFConfig for claim ${subject}${origin}: ${problems.join('; ')}`;
  return new DriverError('config-invalid', message, { claim: subject });
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
  const problems = result.error.issues.map(({ path, message }) => `${path.join('.') || 'parameters'}: ${message}`);
  throw invalidConfig(claim, problems, source === 'FromClass' ? ', from its DeviceClass' : ', from the claim');
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
  if (interfaceName === undefined) return config;
  const name = interfaceName.replace('%d', String(index));
  try {
    assertInterfaceName(name);
  } catch (cause) {
    throw new DriverError('config-invalid', `interfaceName of claim ${subject} cannot be used`, {
      cause,
      claim: subject,
    });
  }
  return { ...config, interfaceName: name };
}
