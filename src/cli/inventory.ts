import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { DeviceConditions } from '../driver/devices/device-conditions.ts';
import type { DeviceState } from '../driver/devices/device-state.ts';
import { heldDevices } from '../driver/devices/held-devices.ts';
import { type InventoryView, type OfferedDevice, viewInventory } from '../driver/devices/inventory-view.ts';
import { PolicyFile } from '../driver/devices/policy-file.ts';
import type { StoredClaim, UnrestoredVf } from '../driver/model/index.ts';
import { systemClock } from '../lib/clock.ts';
import { defined } from '../lib/defined.ts';
import { textFiles } from '../lib/text-files.ts';
import { Inventory, type InventoryOptions, type InventoryPolicy } from '../node/inventory/index.ts';
import { SriovError, Sysfs } from '../node/sriov/index.ts';
import { formatTable, type Terminal } from './terminal.ts';

export interface InventoryToolOptions {
  /** Name of the driver. */
  driver: string;
  connection: InventoryOptions['connection'];
  devicePlugins?: InventoryOptions['devicePlugins'];
  /** Root of sysfs. */
  sysfsRoot: string;
  /** The driver's state directory, for simulated VFs. Absent: real VFs are listed. */
  simulatedIn?: string;
  /** Path of a policy's file. Absent: the policy in force. */
  policyPath?: string;
  /** Prepared claims from the driver's store. */
  claims: readonly StoredClaim[];
  unrestored: readonly UnrestoredVf[];
  /** The driver's other stored facts. Absent: the driver has not run here. */
  state?: DeviceState;
}

/**
 * Scans the devices as the driver does, without changing anything. Used if no driver runs, and for another policy, whose effect
 * the running driver cannot tell.
 * @throws NetdraError `policy-invalid`; SriovError, NetlinkError
 */
export async function takeInventory(options: InventoryToolOptions): Promise<InventoryView> {
  const { driver, connection, sysfsRoot, simulatedIn, policyPath, claims, unrestored, state } = options;
  const held = heldDevices(claims);
  // The policy is read before the devices, so that it can be checked on a machine without devices.
  const inForce = policyPath === undefined ? (state?.policy ?? {}) : await readPolicy(policyPath);
  const policy = () => inForce;
  const conditions = new DeviceConditions(
    { driver, held: () => held, unrestored: () => unrestored, clock: systemClock },
    { hung: () => state?.hungWrites ?? [], active: () => state?.conditions ?? [], policy },
  );
  if (state?.keepsTaints === false) conditions.dropTaints();
  const sysfs = new Sysfs(simulatedIn === undefined ? sysfsRoot : findTree(simulatedIn));
  const switchedOnAtStart: InventoryView['switchedOnAtStart'] = [];
  const vfSwitch: InventoryOptions['vfSwitch'] = {
    async ensure({ pciAddress, vfs }, numVfs) {
      if (numVfs > 0 && vfs.length === 0) switchedOnAtStart.push({ pciAddress, numVfs });
      return { vfs };
    },
  };
  const simulated = simulatedIn !== undefined;
  const devicePlugins = simulated ? undefined : options.devicePlugins;
  const inventory = new Inventory({ sysfs, connection, simulated, policy, vfSwitch, ...defined({ devicePlugins }) });
  const asFound = heldDevices([...claims, { devices: unrestored.map(({ device }) => device) }]);
  const report = await inventory.scan(asFound);
  const { policyFault } = policyPath === undefined ? (state ?? {}) : {};
  const view = viewInventory({ report, devices: report.devices, conditions, claims, ...defined({ policyFault }) });
  return { ...view, switchedOnAtStart };
}

async function readPolicy(path: string): Promise<InventoryPolicy> {
  let policy: InventoryPolicy = {};
  await new PolicyFile(path, textFiles).follow((read) => {
    policy = read ?? {};
  });
  return policy;
}

function findTree(stateDir: string): string {
  const tree = join(stateDir, 'simulated');
  if (existsSync(tree)) return tree;
  throw new SriovError('sysfs-unreadable', `there are no simulated VFs in ${stateDir}`, {
    path: tree,
    hint: "the driver creates them when it starts with --simulate; check that --state-dir, or --kubelet-plugins-dir and --driver-name, match the driver's",
  });
}

export function formatInventory(terminal: Terminal, view: InventoryView): string {
  const { devices, excluded, problems, warnings, switchedOnAtStart } = view;
  const lines = [
    devices.length === 0
      ? `no device is offered${view.whyNothing === undefined ? '' : `: ${view.whyNothing}`}\n`
      : formatTable(terminal, head, devices.map(toRow)),
    ...formatConditions(terminal, devices),
    ...(excluded.length === 0 ? [] : ['\n', formatExcluded(terminal, excluded)]),
    ...switchedOnAtStart.map(
      ({ pciAddress, numVfs }) =>
        `\n${pciAddress}: the driver will enable ${numVfs} VFs, as the policy says; if it is already running, enabling them failed: its log says why\n`,
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
  const pf = text('pfName') || text('pfPciAddress');
  const others = ['mac', 'mtu', 'resource.kubernetes.io/numaNode', 'iommuGroup'].map(text);
  return [name, text('kind'), pf, vf, text('driver'), interfaceName ?? '', ...others, claim ?? ''];
}

/** Formats conditions. Many devices share their PF's condition, so equal lines are merged. */
function formatConditions(terminal: Terminal, devices: readonly OfferedDevice[]): string[] {
  const all = devices.flatMap(({ name, taints = [], conditions = [] }) =>
    conditions.map(({ condition, message }) => {
      const taint = taints.find(({ key }) => key.endsWith(`/${condition}`));
      const effect = taint === undefined ? 'no taint' : `taint ${taint.key}, ${taint.effect}`;
      return { name, text: `${terminal.style('yellow', effect)}: ${message}` };
    }),
  );
  return [...Map.groupBy(all, ({ text }) => text)].map(
    ([text, having]) => `\n${having.map(({ name }) => name).join(', ')}: ${text}\n`,
  );
}

function formatExcluded(terminal: Terminal, excluded: InventoryView['excluded']): string {
  const rows = excluded.map(({ pciAddress, pfAddress = '', interfaceName = '', explanation }) => {
    return [pciAddress, pfAddress, interfaceName, terminal.style('yellow', explanation)];
  });
  return formatTable(terminal, ['NOT OFFERED', 'PF', 'INTERFACE', 'WHY'], rows);
}
