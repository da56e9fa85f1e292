import { join } from 'node:path';
import { errnoCode, explain } from '../../lib/errors.ts';
import { DevicePlugins } from '../../node/inventory/index.ts';
import { type Pf, SriovError, type Sysfs, type Vf } from '../../node/sriov/index.ts';
import { listNames } from '../files.ts';
import { named, ok, problem, type Verdict, warning } from '../finding.ts';

/** The node's SR-IOV NICs, as far as sysfs can be read. */
export interface Cards {
  /** PFs with the names of their interfaces. `isDown`: all interfaces of the PF are down. */
  pfs: (Pf & { names: string[]; isDown: boolean })[];
  vfs: Vf[];
  problems: SriovError[];
}

/** Reads the node's SR-IOV NICs. @throws SriovError `sysfs-unreadable` if nothing can be read */
export async function readCards(sysfs: Sysfs): Promise<Cards> {
  const cards: Cards = { pfs: [], vfs: [], problems: [] };
  const attempt = async (task: () => Promise<unknown>) => {
    try {
      await task();
    } catch (error) {
      if (!(error instanceof SriovError)) throw error;
      cards.problems.push(error);
    }
  };
  for (const address of (await sysfs.networkFunctions()).pfs) {
    await attempt(async () => {
      const pf = await sysfs.pf(address);
      const names = await sysfs.portNames(address);
      const states = await Promise.all(names.map((name) => sysfs.isUp(address, name)));
      cards.pfs.push({ ...pf, names, isDown: states.includes(false) && !states.includes(true) });
      for (const entry of pf.vfs) await attempt(async () => cards.vfs.push(await sysfs.vf(pf, entry)));
    });
  }
  return cards;
}

/**
 * Checks that there are SR-IOV NICs with VFs. @param simulated whether the driver runs with `--simulate` and needs no real NICs
 */
export function checkSriov({ pfs, problems }: Cards, simulated: boolean): Verdict[] {
  const unread = problems.map((error) => problem(explain(error), 'check the kernel log for the card'));
  if (pfs.length === 0 && unread.length === 0) {
    if (simulated) return [ok('no card supports it; VFs are simulated')];
    const fix = 'switch SR-IOV on in the firmware of machine and card, or run the driver with --simulate';
    return [warning('no network card supports it', fix)];
  }
  return [...pfs.map(checkPf), ...unread];
}

function checkPf({ names, isDown, pciAddress, driver, vfs, totalVfs }: Cards['pfs'][number]): Verdict {
  const name = names.length === 0 ? pciAddress : `${names.join('/')} (${pciAddress})`;
  const message = `${name}, ${driver ?? 'no driver'}: ${vfs.length} of ${totalVfs} VFs are on`;
  if (vfs.length > 0 && isDown) {
    const fix = `ip link set ${names[0]} up; if its VFs work while the PF is down, set taints.pfDown of the inventory policy to None`;
    return warning(`${message}, and the PF is down: the VFs of most cards have no link then`, fix);
  }
  if (vfs.length > 0) return ok(message);
  if (totalVfs === 0) return warning(message, 'switch SR-IOV on in the firmware of the card');
  const file = `/sys/bus/pci/devices/${pciAddress}/sriov_numvfs`;
  return warning(message, `set numVfs in the inventory policy, or: echo ${Math.min(8, totalVfs)} > ${file}`);
}

/** Kernel module for VFs, by the kernel module of their PF. A module that is not listed, such as mlx5_core, serves both. */
const vfModules: Readonly<Record<string, string>> = {
  igb: 'igbvf',
  ixgbe: 'ixgbevf',
  i40e: 'iavf',
  ice: 'iavf',
  cxgb4: 'cxgb4vf',
};

/** Checks that the kernel modules for VFs and for DPDK are loaded or built in. */
export async function checkModules(sysDir: string, { pfs, vfs }: Cards): Promise<Verdict[]> {
  if (pfs.length === 0) return [];
  const loaded = new Set(await listNames(join(sysDir, 'bus/pci/drivers')));
  const checkModule = (module: string, effect: string): Verdict => {
    const isThere = loaded.has(module) || loaded.has(module.replaceAll('_', '-'));
    const fix = `modprobe ${module}, and list it in /etc/modules-load.d`;
    return named(`module ${module}`, isThere ? ok('loaded') : warning(`not loaded: ${effect}`, fix));
  };
  const drivers = [...new Set(pfs.flatMap(({ driver }) => driver ?? []))].sort();
  const needed = [...new Set(drivers.map((driver) => vfModules[driver] ?? driver))];
  return [
    ...needed.map((module) => checkModule(module, 'VFs get no network interface')),
    checkModule('vfio-pci', 'claims with driver: vfio-pci (DPDK) fail'),
    ...checkUnbound(vfs),
  ];
}

function checkUnbound(vfs: Cards['vfs']): Verdict[] {
  const unbound = vfs.filter(({ driver }) => driver === undefined).map(({ pciAddress }) => pciAddress);
  if (unbound.length === 0) return [];
  const message = `${unbound.length} VFs have no driver, and so no interface: ${unbound[0]}${unbound.length > 1 ? ' …' : ''}`;
  const autoprobe = `/sys/bus/pci/devices/${unbound[0]}/physfn/sriov_drivers_autoprobe`;
  const fix = `echo 1 > ${autoprobe}; echo ${unbound[0]} > /sys/bus/pci/drivers_probe; if that does not help, the kernel log says why`;
  return [named('VF drivers', warning(message, fix))];
}

function unreadRecord(checkpoint: string, error: unknown): Verdict {
  if (errnoCode(error) === 'EACCES') return problem(`no permission to read ${checkpoint}`, 'run this as root');
  // A driver that is running keeps the last content that it read.
  const effect = 'netdra offers no device if it starts now';
  const fix =
    'on a node without device plugins remove the file; otherwise check the kubelet, which writes it when a plugin registers';
  return problem(`${checkpoint} cannot be read (${explain(error)}): ${effect}`, fix);
}

/**
 * Lists functions that a program has open through vfio, although no claim has them. @param claimed PCI addresses of claims'
 * devices
 */
export function checkOpen({ pfs, vfs }: Cards, claimed: ReadonlySet<string>): Verdict[] {
  const open = [...pfs, ...vfs].filter(({ pciAddress, isOpen }) => isOpen && !claimed.has(pciAddress));
  const [first, ...others] = open.map(({ pciAddress, iommuGroup }) => `${pciAddress} (/dev/vfio/${iommuGroup})`);
  if (first === undefined) return [];
  const message = `a program has ${first}${others.length === 0 ? '' : ` and ${others.length} more`} open, so netdra does not offer it`;
  return [warning(message, 'find it with fuser on the node and end it, or leave the VFs out of the inventory policy')];
}

/** Lists VFs that a device plugin of the kubelet manages, and which netdra therefore does not offer. */
export async function checkDevicePlugins({ pfs, vfs }: Cards, checkpoint: string): Promise<Verdict[]> {
  const { givenOut, error } = await new DevicePlugins(checkpoint).read();
  const unread = error === undefined ? [] : [unreadRecord(checkpoint, error)];
  const functions = [...pfs, ...vfs].map(({ pciAddress }) => pciAddress).filter((each) => givenOut?.has(each));
  const byResource = Map.groupBy(functions, (pciAddress) => givenOut?.get(pciAddress) ?? '');
  const taken = [...byResource].map(([resource, [first, ...others]]) => {
    const count = others.length === 0 ? `${first}` : `${first} and ${others.length} more`;
    const fix =
      'let only one offer them: select other VFs in the inventory policy, or in the ConfigMap of the device plugin';
    return warning(`a device plugin offers ${count} as ${resource}, so netdra does not offer them`, fix);
  });
  return [...unread, ...taken];
}
