import { setImmediate } from 'node:timers/promises';
import type * as z from 'zod';
import type { AllocatedConfiguration } from '../../framework/kube/index.ts';
import type { AllocatedClaim } from '../../framework/kubeletplugin/index.ts';
import { baseRequest, claimName } from '../../framework/metadata/index.ts';
import { parseCniIpam, parseCniNetwork } from '../../node/cni/index.ts';
import { assertInterfaceName } from '../../node/netlink/index.ts';
import { DriverError, invalidConfig, mergeVfConfigs, type VfConfig } from '../model/index.ts';
import { primaryProblems } from './bond-rules.ts';
import { type ClassConfig, classConfigSchema } from './class-config.ts';
import { type ClaimRules, checkClaimConfig, findMissing, noRules } from './class-rules.ts';
import { findContradictions } from './config-rules.ts';
import { parsedOnce, withoutRepeats } from './parameters.ts';
import { vfConfigSchema } from './vf-config.ts';

/** Number of entries or requests of a claim after which the driver yields to other work: each can take some milliseconds. */
export const entriesPerTurn = 4;

/**
 * Returns the settings for a request: those of its class, and those that the claim adds. Each entry of `vf` and `sysctls`
 * counts by itself. The settings of the class are final, except for the fields in its `overridable`. If several entries of
 * the class, or of the claim, set a field, the last one wins. Source of the scoping rules: resource.k8s.io/v1
 * `DeviceAllocationConfiguration`.
 * @throws DriverError `config-invalid` with the path of the field and what is allowed; `config-conflict` with the values of
 * claim and class; CniError `cni-config-invalid`
 */
export function resolveVfConfig(
  driver: string,
  claim: AllocatedClaim,
  request: string,
  rules: ClaimRules = noRules,
): VfConfig {
  const ofClass = classConfigsOf(driver, claim, request);
  const ofClaim = entriesFor(driver, claim, request, 'FromClaim').map((each) => parseClaimEntry(claim, each));
  const { merges, checks } = resolvedOf(claim, rules);
  const known = merges.find((each) => isSameList(each.ofClass, ofClass) && isSameList(each.ofClaim, ofClaim));
  if (known !== undefined) return known.merged;
  for (const config of ofClaim) {
    if (checks.some((each) => each.config === config && isSameList(each.ofClass, ofClass))) continue;
    checkClaimConfig(claim, config, ofClass, rules);
    checks.push({ config, ofClass });
  }
  // The entries are checked together, too: the routes of one entry and the addresses of another add up.
  if (ofClaim.length > 1) checkClaimConfig(claim, ofClaim.reduce(mergeVfConfigs, {}), ofClass, rules);
  const settings = ofClass.map(({ overridable: _overridable, limits: _limits, ...config }): VfConfig => config);
  const whole = [...settings, ...ofClaim].reduce(mergeVfConfigs, {});
  checkWhole(claim, whole);
  const merged = withVrfTable(whole);
  merges.push({ ofClass, ofClaim, merged });
  return merged;
}

/** Returns the configuration with the routes of an interface in a VRF moved to the VRF's table. */
function withVrfTable(config: VfConfig): VfConfig {
  const { vrf, routes } = config;
  if (vrf === undefined || routes === undefined) return config;
  return { ...config, routes: routes.map((route) => ({ ...route, table: vrf.table })) };
}

/**
 * Parses the driver's entries of a claim, a few at a time, and caches them for `resolveVfConfig`. The largest claim takes some
 * 100 ms, which would block the event loop. `resolveVfConfig` reports invalid entries, with their request.
 */
export async function parseEntries(driver: string, claim: AllocatedClaim): Promise<void> {
  const entries = claim.object.status?.allocation?.devices?.config ?? [];
  const own = entries.filter(({ opaque, source }) => opaque?.driver === driver && source === 'FromClaim');
  for (const [index, { opaque }] of own.entries()) {
    if (index > 0 && index % entriesPerTurn === 0) await setImmediate();
    try {
      parseClaimEntry(claim, opaque?.parameters);
    } catch {
      // `resolveVfConfig` throws this error again, for the request that has the entry.
    }
  }
}

function parseClaimEntry(claim: AllocatedClaim, parameters: unknown): VfConfig {
  return parsedOnce(parameters, vfConfigSchema, () => parse(claim, vfConfigSchema, parameters, ', from the claim'));
}

/** Cached configurations of a claim's requests: most requests share entries. */
interface Resolved {
  merges: { ofClass: readonly ClassConfig[]; ofClaim: readonly VfConfig[]; merged: VfConfig }[];
  checks: { config: VfConfig; ofClass: readonly ClassConfig[] }[];
}

const resolved = new WeakMap<AllocatedClaim, WeakMap<ClaimRules, Resolved>>();

function resolvedOf(claim: AllocatedClaim, rules: ClaimRules): Resolved {
  const byRules = resolved.get(claim) ?? new WeakMap<ClaimRules, Resolved>();
  const found = byRules.get(rules) ?? { merges: [], checks: [] };
  resolved.set(claim, byRules.set(rules, found));
  return found;
}

function isSameList(one: readonly unknown[], other: readonly unknown[]): boolean {
  return one.length === other.length && one.every((each, index) => each === other[index]);
}

/**
 * Returns the settings that a request's class has, one element for each configuration of the class.
 * @throws DriverError `config-invalid`
 */
export function classConfigsOf(driver: string, claim: AllocatedClaim, request: string): ClassConfig[] {
  return entriesFor(driver, claim, request, 'FromClass').map((parameters) => {
    return parsedOnce(parameters, classConfigSchema, () =>
      parse(claim, classConfigSchema, parameters, ', from its DeviceClass'),
    );
  });
}

/**
 * Checks the merged configuration of a request. @throws DriverError `config-invalid` for missing fields and combinations that
 * are not allowed; CniError
 */
function checkWhole(claim: AllocatedClaim, config: VfConfig): void {
  const problems = [...findContradictions(config), ...primaryProblems(claim, config), ...findMissing(config)];
  if (problems.length > 0) throw invalidConfig(claim, problems);
  parseCni(`claim ${claimName(claim.identity)}`, config);
}

/**
 * Returns the types of the CNI plugins that a configuration runs, including IPAM plugins that another plugin calls.
 * @throws CniError
 */
export function cniPluginTypes(claim: AllocatedClaim, config: VfConfig): string[] {
  const { network, ipam } = parseCni(`claim ${claimName(claim.identity)}`, config);
  const types = network?.plugins.flatMap((plugin) => [plugin.type, plugin.ipam?.type]) ?? [];
  return [...types, ipam?.ipam.type].filter((type) => type !== undefined && type !== '') as string[];
}

/**
 * Parses the network and IPAM configurations of CNI. @param of owner of the configuration, for errors: `claim
 * default/fast-net` @throws CniError
 */
export function parseCni(of: string, { cni, ipam }: VfConfig) {
  return {
    network: cni === undefined ? undefined : parseCniNetwork(cni, of, { defaultName: 'netdra' }),
    ipam: ipam === undefined ? undefined : parseCniIpam(ipam, of, { name: 'netdra' }),
  };
}

function covers(requests: string[], request: string): boolean {
  return requests.length === 0 || requests.some((each) => each === request || each === baseRequest(request));
}

/**
 * Returns the opaque parameters for a request, in the order of `entries` (default: those of the allocation), without repeats.
 */
export function entriesFor(
  driver: string,
  claim: AllocatedClaim,
  request: string,
  source: 'FromClass' | 'FromClaim',
  entries: readonly AllocatedConfiguration[] = claim.object.status?.allocation?.devices?.config ?? [],
): unknown[] {
  const parameters = entries
    .filter((entry) => entry.source === source && entry.opaque?.driver === driver)
    .filter((entry) => covers(entry.requests ?? [], request))
    .map(({ opaque }) => opaque?.parameters);
  return withoutRepeats(parameters);
}

/** Parses the settings of a configuration. @returns the settings without `apiVersion` and `kind` */
function parse<T extends { apiVersion: string; kind: string }>(
  claim: AllocatedClaim,
  schema: z.ZodType<T>,
  parameters: unknown,
  origin: string,
): Omit<T, 'apiVersion' | 'kind'> {
  // A zod record skips the key `__proto__`, so zod would accept it silently.
  if (hasOwnProto(parameters) || hasOwnProto(Object(parameters).sysctls)) {
    throw invalidConfig(claim, ['__proto__: is not a field or key'], origin);
  }
  const result = schema.safeParse(parameters);
  if (result.success) {
    const { apiVersion: _apiVersion, kind: _kind, ...config } = result.data;
    return config;
  }
  const problems = result.error.issues.map(({ path, message }) => `${path.join('.') || 'parameters'}: ${message}`);
  throw invalidConfig(claim, problems, origin);
}

function hasOwnProto(value: unknown): boolean {
  return typeof value === 'object' && value !== null && Object.hasOwn(value, '__proto__');
}

/**
 * Returns the settings for one of several devices of a request.
 * @throws DriverError `config-invalid` if several devices would share a setting that must be unique, such as an address
 */
export function configForDevice(config: VfConfig, subject: string, index: number, count: number): VfConfig {
  const { interfaceName } = config;
  const single = (field: string, hint: string) => {
    const message = `${field}: can be set for one device only, but the request of claim ${subject} has ${count} devices`;
    return new DriverError('config-invalid', message, { claim: subject, hint });
  };
  if (count > 1) {
    if (config.bond === undefined && config.addresses?.length)
      throw single('addresses', 'use one request for each device with static addresses');
    if (config.addressPool) throw single('addressPool', 'use one request for each device');
    if (config.macAddress) throw single('macAddress', 'use one request for each device with a MAC address of its own');
    if (interfaceName && !interfaceName.includes('%d')) throw single('interfaceName', 'put %d into the name');
  }
  if (interfaceName === undefined) return config;
  const name = interfaceName.replace('%d', String(index));
  try {
    assertInterfaceName(name);
  } catch (cause) {
    const message = `interfaceName of claim ${subject} cannot be used`;
    throw new DriverError('config-invalid', message, { cause, claim: subject });
  }
  return { ...config, interfaceName: name };
}
