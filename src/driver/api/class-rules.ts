import { isDeepStrictEqual } from 'node:util';
import type { AllocatedClaim } from '../../framework/kubeletplugin/index.ts';
import { baseRequest } from '../../framework/metadata/index.ts';
import { type Cidr, parseCidr } from '../../node/netlink/index.ts';
import {
  type ClaimField,
  type ClosedField,
  claimFields,
  closedFields,
  type DriverError,
  fieldOf,
  mergeVfConfigs,
  refusal,
  type VfConfig,
} from '../model/index.ts';
import { type ClassConfig, type ClassLimits, vlanBounds } from './class-config.ts';
import { checkRoutes, isInOne, overLimit } from './route-limits.ts';

/** Rules for the settings of claims. */
export interface ClaimRules {
  /** Closed fields that the operator opens to all claims, unless a class sets the field. */
  open: readonly ClosedField[];
  /** Networks of the node itself, to which claims may not have routes. */
  nodeNetworks: readonly Cidr[];
}

const acceptRa = 'net.ipv6.conf.IFNAME.accept_ra';

/** Fields by which a claim lets another component choose its addresses and routes, such as Multus, a router or a CNI plugin. */
const chosenElsewhere = [
  {
    field: 'sysctls',
    isAsked: ({ sysctls = {} }: VfConfig) => Number(sysctls[acceptRa] ?? 0) !== 0,
    what: `${acceptRa}, with which routers choose`,
  },
  {
    field: 'slaac',
    isAsked: ({ slaac }: VfConfig) => slaac !== undefined,
    what: 'slaac, with which routers choose',
  },
  {
    field: 'addressPool.name',
    isAsked: ({ addressPool }: VfConfig) => addressPool?.name !== undefined,
    what: 'addressPool.name, with which a pool chooses',
  },
  {
    field: 'attach',
    isAsked: ({ attach }: VfConfig) => attach === 'observe',
    what: 'attach to observe, with which another component chooses',
  },
  {
    field: 'keepHostConfig',
    isAsked: ({ keepHostConfig }: VfConfig) => keepHostConfig === true,
    what: 'keepHostConfig, with which the node chooses',
  },
  ...(['ipam', 'cni', 'networkAttachmentDefinition'] as const).map((field) => {
    return {
      field,
      isAsked: (config: VfConfig) => config[field] !== undefined,
      what: `${field}, with which plugins choose`,
    };
  }),
] satisfies { field: ClaimField; isAsked: (config: VfConfig) => boolean; what: string }[];

export const noRules: ClaimRules = { open: [], nodeNetworks: [] };

/**
 * Checks one configuration of a claim against its class.
 * @param ofClass all configurations of the class
 * @throws DriverError `config-conflict` if the class sets a field to another value; `config-invalid` for fields that the
 * claim may not set, and for values over a limit of the class
 */
export function checkClaimConfig(
  claim: AllocatedClaim,
  config: VfConfig,
  ofClass: readonly ClassConfig[],
  { open, nodeNetworks }: ClaimRules,
): void {
  const opened = new Set<ClaimField>(ofClass.flatMap(({ overridable = [] }) => overridable));
  const merged = ofClass.reduce<VfConfig>(mergeVfConfigs, {});
  const limits = ofClass.flatMap((each) => each.limits ?? []);
  const refused: ClaimField[] = [];
  for (const field of claimFields) {
    if (opened.has(field)) continue;
    const value = askedOf(claim, config, field);
    if (value === undefined) continue;
    const fixed = fieldOf(merged, field);
    if (fixed !== undefined) {
      if (!isSame(field, value, fixed)) throw conflict(claim, field, value, fixed);
    } else if (isClosed(field, merged, limits, open)) refused.push(field);
  }
  if (refused.length > 0) {
    const canNamePool = opened.has('addressPool.name') || open.includes('addressPool.name');
    const hint = hintForClosed(refused, canNamePool && limits.some(({ addressPools }) => addressPools !== undefined));
    throw refusal(claim, 'config-invalid', ` may not set ${refused.join(', ')}`, { hint });
  }
  const unlimited = chosenElsewhere.filter(({ field, isAsked }) => {
    return isAsked(config) && fieldOf(merged, field) === undefined && !opened.has(field);
  });
  for (const each of limits) {
    for (const choice of unlimited) checkElsewhere(claim, each, choice);
    checkConfigLimits(claim, config, each);
  }
  checkRoutes(claim, config, limits, nodeNetworks);
}

const unset = 'neither claim nor DeviceClass sets it';

/**
 * Returns problems for required fields that neither the class nor the claim sets.
 * @param config merged settings of both
 * @returns problems as `field: what is needed`
 */
export function findMissing({ addressPool }: VfConfig): string[] {
  if (addressPool === undefined || addressPool.name !== undefined) return [];
  return [`addressPool.name: is needed, and ${unset}`];
}

/**
 * Returns a problem, as {@link findMissing} does, if the class limits VLANs and neither the class nor the claim sets one. Only
 * for Ethernet VFs: other devices have no VLAN.
 */
export function findMissingVlan({ vf }: VfConfig, ofClass: readonly ClassConfig[]): string[] {
  // Without `vf.vlan`, the VF keeps the VLAN that the host has set: usually none, so the VF is in the port's native network.
  const { vlanRanges } = ofClass.find(({ limits }) => limits?.vlanRanges !== undefined)?.limits ?? {};
  if (vlanRanges === undefined || vf?.vlan !== undefined) return [];
  const allowed = vlanRanges.join(', ') || 'none';
  return [`vf.vlan: is needed, since limits.vlanRanges of the DeviceClass allows only ${allowed}, and ${unset}`];
}

/**
 * Checks the number of devices, except those that the claim may only observe (`adminAccess`).
 * @throws DriverError `config-invalid` if the claim has more devices of the request's class than that class allows
 */
export function checkDeviceCount(claim: AllocatedClaim, request: string, ofClass: readonly ClassConfig[]): void {
  const most = Math.min(...ofClass.map(({ limits }) => limits?.maxDevices ?? Number.POSITIVE_INFINITY));
  if (most === Number.POSITIVE_INFINITY) return;
  const className = classOf(claim, request);
  const own = claim.results.filter(({ adminAccess }) => adminAccess !== true);
  const count = own.filter((each) => classOf(claim, each.request) === className).length;
  if (count > most) throw overLimit(claim, 'maxDevices', `has ${count} devices of class ${className}`, `${most}`);
}

/** Returns the name of a request's class, from the claim's specification; `undefined` if it has no such request. */
export function classOf({ object }: AllocatedClaim, request: string): string | undefined {
  const [base, subrequest] = [baseRequest(request), request.split('/')[1]];
  const found = object.spec.devices?.requests?.find(({ name }) => name === base);
  if (subrequest === undefined) return found?.exactly?.deviceClassName;
  return found?.firstAvailable?.find(({ name }) => name === subrequest)?.deviceClassName;
}

/**
 * Returns the value that a claim requests. A claim that names its own namespace, or the default mode of a bond, counts as not
 * setting the field.
 */
function askedOf({ identity }: AllocatedClaim, config: VfConfig, field: ClaimField): unknown {
  const value = fieldOf(config, field);
  if (field === 'networkAttachmentDefinition.namespace' && value === identity.namespace) return undefined;
  return field === 'bond.mode' && value === 'active-backup' ? undefined : value;
}

/** Returns whether a claim repeats the class's value. Each sysctl counts by itself: a claim may repeat only some of them. */
function isSame(field: ClaimField, value: unknown, fixed: unknown): boolean {
  const whole = field === 'sysctls' ? { ...Object(fixed), ...Object(value) } : value;
  return isDeepStrictEqual(whole, fixed);
}

function isClosed(
  field: ClaimField,
  ofClass: VfConfig,
  limits: readonly ClassLimits[],
  open: readonly ClosedField[],
): boolean {
  // Closed if the class limits the pools: a claim that names no pool could otherwise set any address of a pool.
  if (field === 'addresses' && limits.some(({ addressPools }) => addressPools !== undefined)) return true;
  // If the class names an IPAM plugin, the plugin decides on the addresses and routes of a VF.
  if (field === 'addresses' || field === 'routes') return ofClass.ipam !== undefined;
  return closedFields.some((each) => each === field && !open.includes(each));
}

/** @param choosesPool whether the claim may choose a pool of the class */
function hintForClosed(fields: readonly ClaimField[], choosesPool: boolean): string {
  const ways = fields.every((field) => closedFields.some((each) => each === field))
    ? 'list it in its field `overridable`, or open it to all claims with --open-claim-fields'
    : 'or list it in its field `overridable`';
  const byPool = choosesPool && fields.includes('addresses') ? 'choose a pool with addressPool.name instead, or ' : '';
  return `${byPool}an administrator can set the field in the DeviceClass, ${ways}`;
}

/**
 * Refuses a field by which another component would choose addresses and routes, if the class limits addresses or routes: the
 * driver could not enforce the limits.
 */
function checkElsewhere(claim: AllocatedClaim, limits: ClassLimits, { field, what }: (typeof chosenElsewhere)[number]) {
  const limit = (['addressRanges', 'maxAddresses', 'routes', 'maxRoutes', 'addressPools'] as const).find(
    // `addressPools` allows names of pools, so it does not rule out `addressPool.name`.
    (each) => limits[each] !== undefined && (each !== 'addressPools' || field !== 'addressPool.name'),
  );
  if (limit === undefined) return;
  const hint = `an administrator can set ${field} in the DeviceClass, or list it in its field \`overridable\``;
  throw overLimit(claim, limit, `sets ${what} addresses and routes`, `${limits[limit]}`, hint);
}

function checkConfigLimits(claim: AllocatedClaim, config: VfConfig, limits: ClassLimits): void {
  const { vf, addresses = [], addressPool } = config;
  const { vlanRanges, addressPools, addressRanges, maxAddresses } = limits;
  const vlan = vf?.vlan;
  if (vlan !== undefined && vlanRanges !== undefined && !vlanRanges.some((range) => isInRange(vlan, range))) {
    throw overLimit(claim, 'vlanRanges', `sets vf.vlan to ${vlan}`, vlanRanges.join(', '));
  }
  const pool = addressPool?.name;
  if (pool !== undefined && addressPools?.includes(pool) === false) {
    throw overLimit(claim, 'addressPools', `sets addressPool.name to ${pool}`, addressPools.join(', '));
  }
  if (addressRanges !== undefined) {
    const outside = addresses.map(hostOf).find((host) => !isInOne(parseCidr(host), addressRanges));
    if (outside !== undefined) {
      throw overLimit(claim, 'addressRanges', `sets addresses to ${outside}`, addressRanges.join(', '));
    }
  }
  if (maxAddresses !== undefined && addresses.length > maxAddresses) {
    throw overLimit(claim, 'maxAddresses', `sets ${addresses.length} addresses`, `${maxAddresses}`);
  }
}

/** Returns the address with the longest prefix: its network is checked as a route, not as an address. */
function hostOf(address: string): string {
  return `${address.split('/')[0]}/${address.includes(':') ? 128 : 32}`;
}

function isInRange(vlan: number, range: string): boolean {
  const [from, to] = vlanBounds(range);
  return vlan >= from && vlan <= to;
}

function conflict(claim: AllocatedClaim, field: string, value: unknown, fixed: unknown): DriverError {
  const [asked, set] = [value, fixed].map((each) => JSON.stringify(each));
  return refusal(claim, 'config-conflict', ` sets ${field} to ${asked}, but its DeviceClass sets it to ${set}`, {
    hint: `leave it out of the claim, or let an administrator list ${field} in \`overridable\` of the DeviceClass`,
  });
}
