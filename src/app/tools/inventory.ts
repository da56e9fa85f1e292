import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { PolicyFile } from '../../driver/devices/policy-file.ts';
import { defined } from '../../lib/defined.ts';
import { explain } from '../../lib/errors.ts';
import {
  deviceAttributes,
  type Exclusion,
  type ExclusionReason,
  type HeldDevices,
  Inventory,
  type InventoryAttribute,
  whyNothing,
} from '../../node/inventory/index.ts';
import type { RtnlConnection } from '../../node/netlink/index.ts';
import { SriovError, Sysfs, type VfSwitch } from '../../node/sriov/index.ts';
import { formatTable, type Terminal } from './terminal.ts';

/** Devices that the node offers, and those that it does not offer. */
export interface InventoryView {
  devices: OfferedDevice[];
  excluded: (Exclusion & { explanation: string })[];
  /** Messages about what cannot be read. */
  problems: string[];
  /** Rules of the policy that select nothing. */
  warnings: string[];
  /** Why no device is offered; absent: some are. */
  whyNothing?: string;
  /** Cards whose VFs the policy switches on when the driver starts; therefore these are not listed. */
  switchedOnAtStart: { pciAddress: string; numVfs: number }[];
}

export interface OfferedDevice {
  name: string;
  /** The claim that holds it, as `namespace/name`. */
  claim?: string;
  /** As in the ResourceSlice. */
  attributes: Record<string, InventoryAttribute>;
  interfaceName?: string;
}

export interface InventoryToolOptions {
  connection: Pick<RtnlConnection, 'defaultRoutes' | 'links' | 'reachableAddresses' | 'vfInfos'>;
  /** Where sysfs is mounted. */
  sysfsRoot: string;
  /** The driver's state directory, to list simulated VFs; absent: real ones are listed. */
  simulatedIn?: string;
  policyPath?: string;
  /** Devices that are prepared for claims, and the claim of each device by PCI address. */
  held: HeldDevices;
  claimOf(pciAddress: string): string | undefined;
}

/** Where `netdra run --simulate` keeps the tree that looks like sysfs. */
export function simulatedTree(stateDir: string): string {
  return join(stateDir, 'simulated');
}

/**
 * Takes inventory of the devices as the driver does, without changing anything.
 * @throws NetdraError `policy-invalid`; SriovError, NetlinkError
 */
export async function takeInventory(options: InventoryToolOptions): Promise<InventoryView> {
  const { connection, sysfsRoot, simulatedIn, policyPath, held, claimOf } = options;
  const sysfs = new Sysfs(simulatedIn === undefined ? sysfsRoot : findTree(simulatedIn));
  const switchedOnAtStart: InventoryView['switchedOnAtStart'] = [];
  const vfSwitch: VfSwitch = {
    async ensure({ pciAddress, vfs }, numVfs) {
      if (numVfs > 0 && vfs.length === 0) switchedOnAtStart.push({ pciAddress, numVfs });
      return { vfs };
    },
  };
  const inventory = new Inventory({ sysfs, connection, simulated: simulatedIn !== undefined, vfSwitch });
  if (policyPath !== undefined) {
    await new PolicyFile(policyPath).follow((policy) => {
      inventory.policy = policy;
    });
  }
  const report = await inventory.scan(held);
  const { devices, excluded, problems, warnings } = report;
  return {
    devices: devices.map((device) => {
      const { name, interfaceName, pciAddress } = device;
      return { name, ...defined({ claim: claimOf(pciAddress), interfaceName }), attributes: deviceAttributes(device) };
    }),
    excluded: excluded.map((exclusion) => ({ ...exclusion, explanation: explanations[exclusion.reason] })),
    problems: problems.map(explain),
    warnings,
    ...(devices.length === 0 && { whyNothing: whyNothing(report) }),
    switchedOnAtStart,
  };
}

function findTree(stateDir: string): string {
  const tree = simulatedTree(stateDir);
  if (existsSync(tree)) return tree;
  throw new SriovError('sysfs-unreadable', `there are no simulated VFs in ${stateDir}`, {
    path: tree,
    hint: 'the driver makes them when it starts with --simulate; is --state-dir, or --kubelet-plugins-dir and --driver-name, as the driver has it?',
  });
}

/** For people; the policy is that of `--inventory-policy`. */
const explanations: Record<ExclusionReason, string> = {
  'carries-default-route': "the node's default route goes through it",
  enslaved: 'it is a port of a bond, bridge or Open vSwitch, or in a VRF',
  'has-address': 'the node has an address on it',
  'has-upper': 'the node has a VLAN, macvlan or the like on it',
  'pf-carries-default-route': "the node's default route goes through its PF; the policy can say allowInUse",
  'pf-enslaved': 'its PF is a port of a bond, bridge or Open vSwitch, or in a VRF; the policy can say allowInUse',
  'not-selected': 'no rule of the policy selects it',
  'has-vfs': 'its VFs are on, or switched on by the policy, and are offered in its place',
  virtio: 'a virtual device of the hypervisor; there is no card to offer',
  'interface-elsewhere': 'its interface is in another network namespace, and no claim has it',
};

export function formatInventory(terminal: Terminal, view: InventoryView): string {
  const { devices, excluded, problems, warnings, switchedOnAtStart } = view;
  const lines = [
    devices.length === 0
      ? `no device is offered: ${view.whyNothing}\n`
      : formatTable(terminal, head, devices.map(toRow)),
    ...(excluded.length === 0 ? [] : ['\n', formatExcluded(terminal, excluded)]),
    ...switchedOnAtStart.map(
      ({ pciAddress, numVfs }) =>
        `\n${pciAddress}: the driver will switch on ${numVfs} VFs, as the policy says; if it runs already, its log says why it could not\n`,
    ),
    ...warnings.map((text) => `\n${terminal.style('yellow', 'warning:')} ${text}\n`),
    ...problems.map((text) => `\n${terminal.style('red', 'problem:')} ${text}\n`),
  ];
  return lines.join('');
}

const head = ['DEVICE', 'KIND', 'PF', 'VF', 'DRIVER', 'INTERFACE', 'MAC', 'MTU', 'NUMA', 'IOMMU', 'CLAIM'];

function toRow({ name, attributes, interfaceName, claim }: OfferedDevice): string[] {
  const text = (attribute: string) => {
    const value = attributes[attribute];
    return value === undefined ? '' : String(Object.values(value)[0]);
  };
  const vf = text('kind') === 'vf' ? text('vfIndex') : '';
  return [
    ...[name, text('kind'), text('pfName') || text('pfPciAddress'), vf, text('driver'), interfaceName ?? ''],
    ...[text('mac'), text('mtu'), text('resource.kubernetes.io/numaNode'), text('iommuGroup'), claim ?? ''],
  ];
}

function formatExcluded(terminal: Terminal, excluded: InventoryView['excluded']): string {
  const rows = excluded.map(({ pciAddress, pfAddress, interfaceName, explanation }) => [
    ...[pciAddress, pfAddress ?? '', interfaceName ?? '', terminal.style('yellow', explanation)],
  ]);
  return formatTable(terminal, ['NOT OFFERED', 'PF', 'INTERFACE', 'WHY'], rows);
}
