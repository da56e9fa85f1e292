import { createHash } from 'node:crypto';
import type { StatusCondition } from '../../framework/kube/index.ts';
import { claimName } from '../../framework/metadata/index.ts';
import { defined } from '../../lib/defined.ts';
import { explain } from '../../lib/errors.ts';
import { printable } from '../../lib/printable.ts';
import { explainExclusion } from '../../node/inventory/index.ts';
import { formatDeviceName } from '../../node/sriov/index.ts';
import type { PfCounts } from '../devices/device-counts.ts';
import type { DeviceList } from '../devices/device-list.ts';
import type { PolicyOrigin } from '../devices/policy-file.ts';
import type { ClaimDevices } from '../model/index.ts';
import { schemaVersion } from '../state/index.ts';

/**
 * Maximum numbers of entries in the lists of a view, and maximum length of its texts in UTF-16 units: a full object has less
 * than 400 KiB. The numbers of devices include omitted entries.
 */
const most = { pfs: 64, claims: 512, groups: 64, devices: 512, problems: 16, text: 512 };

/** Devices of a node in the API: `status` of its NodeNetworkDevices. It contains no values that change by time alone. */
export interface NodeView {
  driver: { name: string; version: string; stateSchema: number };
  /** Numbers of devices, VFs and NICs, as in {@link PfCounts}. */
  devices: { offered: number; inUse: number; withheld: number };
  pfs: PfView[];
  /** Claimed devices, sorted by claim. */
  claims: { namespace: string; name: string; devices: string[] }[];
  /** Devices that new claims cannot get, grouped by PF and reason. */
  withheld: WithheldDevices[];
  /** Policy in force. `digest` is equal on all nodes with the same policy; absent if there is none. */
  policy: PolicyOrigin & { digest?: string; warnings: string[] };
  /** Problems with reading devices. */
  problems: string[];
  conditions: StatusCondition[];
}

export interface PfView {
  /** Name of the PF, as in {@link PfCounts}. */
  name: string;
  pciAddress: string;
  driver?: string;
  /**
   * State of the link. `Down`: the PF's interface is down while its VFs are offered. Absent: the PF has no interface, or its
   * interface is down and no VFs are offered.
   */
  link?: 'Up' | 'NoCarrier' | 'Down';
  /** Speed of the link, Mbit/s, as last seen. */
  speedMbps?: number;
  /** Numbers of VFs that the PF supports, and that are enabled. */
  totalVfs: number;
  numVfs: number;
  /** Numbers of the PF's VFs, as in {@link PfCounts}. */
  vfs: { offered: number; inUse: number; withheld: number; hung: number };
}

export interface WithheldDevices {
  /** PF of the devices; absent for a NIC. */
  pf?: string;
  /** Reason of an exclusion, or name of a condition, such as `no-carrier`. */
  reason: string;
  message: string;
  devices: string[];
}

export interface ViewSources {
  driver: string;
  version: string;
  devices: Pick<
    DeviceList,
    'counts' | 'failure' | 'find' | 'isListed' | 'offered' | 'policyFault' | 'report' | 'state' | 'unhealthy'
  >;
  store: { claims(): readonly ClaimDevices[] };
  /**
   * Returns why the API server does not have the wanted slices; `undefined` if it has them, `null` if that is not known yet.
   */
  slicesFailure: () => string | undefined | null;
}

/** Returns the view of the node. @throws StateError if the store cannot be read */
export function readNodeView(sources: ViewSources): NodeView {
  const { driver: name, version, devices, store } = sources;
  const { pfs } = devices.counts();
  const nameOf = (pciAddress: string) => text(pfs.find((each) => each.pciAddress === pciAddress)?.pf ?? pciAddress);
  const claims = store
    .claims()
    .map(({ identity, devices: all }) => ({
      namespace: identity.namespace,
      name: identity.name,
      devices: all.map((device) => device.name),
    }))
    .sort((a, b) => (claimName(a) < claimName(b) ? -1 : 1));
  const withheld = withheldDevices(devices, nameOf);
  const { problems } = devices.report;
  return {
    driver: { name, version, stateSchema: schemaVersion },
    devices: {
      offered: devices.offered().length,
      inUse: new Set(claims.flatMap((claim) => claim.devices)).size,
      withheld: new Set(withheld.flatMap((group) => group.devices)).size,
    },
    pfs: pfs.slice(0, most.pfs).map((counts) => toPfView(counts, devices)),
    claims: claims.slice(0, most.claims).map((claim) => ({ ...claim, devices: claim.devices.slice(0, most.devices) })),
    withheld: withheld
      .slice(0, most.groups)
      .map((group) => ({ ...group, devices: group.devices.slice(0, most.devices) })),
    policy: toPolicy(sources),
    problems: problems.slice(0, most.problems).map((problem) => text(explain(problem))),
    conditions: conditionsOf(sources),
  };
}

const text = (message: string) => printable(message, most.text);

function toPfView(counts: PfCounts, { report }: ViewSources['devices']): PfView {
  const { pf, pciAddress, vfs } = counts;
  const { driver, linkSpeedMbps, totalVfs, numVfs } = report.pfs.find((each) => each.pciAddress === pciAddress)!;
  const { offered, used: inUse, withheld, hung } = vfs;
  return {
    name: text(pf),
    pciAddress,
    totalVfs,
    numVfs,
    vfs: { offered, inUse, withheld, hung },
    ...defined({ link: linkOf(counts), driver, speedMbps: linkSpeedMbps }),
  };
}

function linkOf({ hasCarrier, isDown }: PfCounts): PfView['link'] {
  if (isDown) return 'Down';
  if (hasCarrier === undefined) return undefined;
  return hasCarrier ? 'Up' : 'NoCarrier';
}

function withheldDevices(devices: ViewSources['devices'], nameOf: (pciAddress: string) => string): WithheldDevices[] {
  const excluded = devices.report.excluded.map((exclusion) => {
    const { pciAddress, pfAddress: pf, reason } = exclusion;
    return { device: formatDeviceName(pciAddress), pf, reason: reason as string, message: explainExclusion(exclusion) };
  });
  const broken = [...devices.unhealthy()].flatMap(([device, conditions]) => {
    const found = devices.find(device);
    const pf = found?.kind === 'vf' ? found.pfAddress : undefined;
    const withholding = conditions.filter(({ effect }) => effect !== 'None');
    return withholding.map(({ name, message }) => ({ device, pf, reason: name as string, message: text(message) }));
  });
  const groups = Map.groupBy([...excluded, ...broken], ({ pf, reason, message }) =>
    JSON.stringify([pf, reason, message]),
  );
  const named = [...groups.values()].map((group): WithheldDevices => {
    const [{ pf, reason, message }] = group as [(typeof group)[number]];
    const own = pf === undefined ? {} : { pf: nameOf(pf) };
    return { ...own, reason, message, devices: group.map(({ device }) => device).sort() };
  });
  const keyOf = ({ pf = '', reason, devices: [first] }: WithheldDevices) => `${pf} ${reason} ${first}`;
  return named.sort((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1));
}

function toPolicy({ devices }: ViewSources): NodeView['policy'] {
  const { policy, policyOrigin } = devices.state;
  const warnings = devices.report.warnings.slice(0, most.problems).map(text);
  const digest = policy && createHash('sha256').update(JSON.stringify(policy)).digest('hex').slice(0, 12);
  return { ...policyOrigin, ...defined({ digest }), warnings };
}

function conditionsOf({ devices, slicesFailure }: ViewSources): StatusCondition[] {
  const { policyFault, isListed, failure, state } = devices;
  const unlisted = isListed ? explain(failure) : `the devices were never listed: ${explain(failure)}`;
  const hasPolicy = state.policy !== undefined;
  const accepted = is('PolicyAccepted', hasPolicy ? 'Accepted' : 'NoPolicy');
  const inForce = hasPolicy ? 'the last valid policy stays in force' : 'no policy is in force';
  return [
    policyFault === undefined ? accepted : isNot('PolicyAccepted', 'Refused', `${inForce}: ${explain(policyFault)}`),
    isListed && failure === undefined ? is('DevicesListed', 'Listed') : isNot('DevicesListed', 'ScanFailed', unlisted),
    slicesCondition(slicesFailure()),
  ];
}

function slicesCondition(failure: string | undefined | null): StatusCondition {
  const type = 'SlicesPublished';
  if (failure === null) return { type, status: 'Unknown', reason: 'Pending', message: '' };
  return failure === undefined ? is(type, 'Published') : isNot(type, 'NotPublished', failure);
}

function is(type: string, reason: string): StatusCondition {
  return { type, status: 'True', reason, message: '' };
}

function isNot(type: string, reason: string, message: string): StatusCondition {
  return { type, status: 'False', reason, message: text(message) };
}
