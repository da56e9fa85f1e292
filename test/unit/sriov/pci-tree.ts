import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

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
  /** Interfaces with their `phys_port_name`. */
  interfaces?: Record<string, string | undefined>;
  totalVfs?: number;
  vfs?: TreeFunction[];
}

/** Lays down a function, and its VFs, in the shape that sysfs has. */
export function layFunction(root: string, pci: TreeFunction): void {
  const above = pci.above ?? `pci${pci.pciAddress.slice(0, 7)}`;
  const dir = join(root, 'devices', above, pci.pciAddress);
  const file = (path: string, text: string) => {
    mkdirSync(dirname(join(dir, path)), { recursive: true });
    writeFileSync(join(dir, path), `${text}\n`);
  };
  const link = (path: string, target: string) => symlinkSync(target, join(dir, path));
  file('vendor', pci.vendor ?? '0x8086');
  file('device', pci.device ?? '0x1572');
  file('class', pci.class ?? '0x020000');
  if (!('numaNode' in pci) || pci.numaNode !== undefined) file('numa_node', pci.numaNode ?? '0');
  if (pci.driver !== undefined) link('driver', `../../../../bus/pci/drivers/${pci.driver}`);
  if (pci.iommuGroup !== undefined) link('iommu_group', `../../../../kernel/iommu_groups/${pci.iommuGroup}`);
  for (const [name, portName] of Object.entries(pci.interfaces ?? {})) {
    file(`net/${name}/address`, '02:00:00:00:00:0a');
    file(`net/${name}/mtu`, '1500');
    if (portName !== undefined) file(`net/${name}/phys_port_name`, portName);
  }
  if (pci.totalVfs !== undefined) file('sriov_totalvfs', String(pci.totalVfs));
  mkdirSync(join(root, 'bus/pci/devices'), { recursive: true });
  symlinkSync(join('../../../devices', above, pci.pciAddress), join(root, 'bus/pci/devices', pci.pciAddress));
  for (const [index, vf] of (pci.vfs ?? []).entries()) {
    layFunction(root, { above, device: '0x154c', ...vf });
    symlinkSync(`../${pci.pciAddress}`, join(root, 'devices', above, vf.pciAddress, 'physfn'));
    link(`virtfn${index}`, `../${vf.pciAddress}`);
  }
}
