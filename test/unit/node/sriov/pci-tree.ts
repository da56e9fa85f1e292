import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { defined } from '../../../../src/lib/defined.ts';
import type { Link } from '../../../../src/node/netlink/index.ts';
import { buildLink } from '../../../doubles/links.ts';

export interface TreeInterface {
  name: string;
  address?: string;
  mtu?: number;
  /** `phys_port_name`. */
  portName?: string;
  /** `ARPHRD_*`; default 1, Ethernet. */
  type?: string;
  /** Mbit/s; `undefined` leaves the file out, as reading it fails while the link is down. */
  speed?: string | undefined;
}

export interface TreeFunction {
  pciAddress: string;
  /** Path of buses above it, e.g. `pci0000:3a/0000:3a:00.0`. */
  above?: string;
  vendor?: string;
  device?: string;
  class?: string;
  driver?: string;
  /** `undefined` leaves the file out. */
  numaNode?: string | undefined;
  iommuGroup?: string;
  interfaces?: TreeInterface[];
  /** The device between the function and its interfaces, such as `virtio2`. */
  busDevice?: string;
  rdmaDevices?: string[];
  totalVfs?: number;
  /** In the order of their numbers. What they do not say is as of an Intel VF below this PF. */
  vfs?: TreeFunction[];
}

const defaultAddress = '02:00:00:00:00:0a';

/** Lays down functions, and their VFs, in the shape that sysfs has. */
export function layTree(root: string, functions: TreeFunction[]): void {
  mkdirSync(join(root, 'bus/pci/devices'), { recursive: true });
  for (const each of functions) layFunction(root, each);
}

export function layFunction(root: string, pci: TreeFunction): void {
  const { pciAddress } = pci;
  const above = pci.above ?? `pci${pciAddress.slice(0, 7)}`;
  const dir = join(root, 'devices', above, pciAddress);
  const file = (path: string, text: string) => layFile(join(dir, path), text);
  file('vendor', pci.vendor ?? '0x8086');
  file('device', pci.device ?? '0x1572');
  file('class', pci.class ?? '0x020000');
  if (!('numaNode' in pci) || pci.numaNode !== undefined) file('numa_node', pci.numaNode ?? '0');
  if (pci.driver !== undefined) layLink(join(dir, 'driver'), relative(dir, join(root, 'bus/pci/drivers', pci.driver)));
  if (pci.iommuGroup !== undefined) {
    layLink(join(dir, 'iommu_group'), relative(dir, join(root, 'kernel/iommu_groups', pci.iommuGroup)));
    layLink(join(root, 'kernel/iommu_groups', pci.iommuGroup, 'devices', pciAddress), dir);
  }
  for (const each of pci.interfaces ?? []) layInterface(join(dir, pci.busDevice ?? ''), each);
  for (const name of pci.rdmaDevices ?? []) {
    file(`infiniband/${name}/node_type`, '1: CA');
    layLink(join(root, 'class/infiniband', name), join('../../devices', above, pciAddress, 'infiniband', name));
  }
  if (pci.totalVfs !== undefined) {
    file('sriov_totalvfs', String(pci.totalVfs));
    file('sriov_numvfs', String(pci.vfs?.length ?? 0));
  }
  layLink(join(root, 'bus/pci/devices', pciAddress), join('../../../devices', above, pciAddress));
  layVfs(root, pciAddress, pci.vfs ?? [], above);
}

/** Adds VFs to a PF that has none. */
export function layVfs(
  root: string,
  pfAddress: string,
  vfs: TreeFunction[],
  above = `pci${pfAddress.slice(0, 7)}`,
): void {
  for (const [index, vf] of vfs.entries()) {
    layFunction(root, { above, device: '0x154c', ...vf });
    layLink(join(root, 'devices', above, vf.pciAddress, 'physfn'), `../${pfAddress}`);
    layLink(join(root, 'devices', above, pfAddress, `virtfn${index}`), `../${vf.pciAddress}`);
  }
}

function layInterface(dir: string, { name, address, mtu, portName, type, ...more }: TreeInterface): void {
  const file = (attribute: string, text: string) => layFile(join(dir, 'net', name, attribute), text);
  file('address', address ?? defaultAddress);
  file('mtu', String(mtu ?? 1500));
  file('type', type ?? '1');
  if (portName !== undefined) file('phys_port_name', portName);
  if (more.speed !== undefined) file('speed', more.speed);
}

export function layFile(path: string, text: string): void {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, `${text}\n`);
}

function layLink(path: string, target: string): void {
  mkdirSync(dirname(path), { recursive: true });
  symlinkSync(target, path);
}

/** What netlink says of the interfaces in such a tree, from index 2 on. */
export function linksOf(functions: TreeFunction[]): Link[] {
  const all = functions.flatMap((pci) => [pci, ...(pci.vfs ?? [])]);
  const found = all.flatMap((pci) => (pci.interfaces ?? []).map((each) => ({ pci, each })));
  return found.map(({ pci, each: { name, address = defaultAddress, mtu: mtuBytes = 1500, portName } }, position) => {
    const link = { index: position + 2, name, hardwareAddress: address, mtuBytes };
    return buildLink({ ...link, parentDevice: pci.busDevice ?? pci.pciAddress, ...defined({ portName }) });
  });
}
