import { join } from 'node:path';
import { listNames } from '../files.ts';
import { type Finding, ok, warning } from '../finding.ts';
import type { Cards } from './cards.ts';

/** Kernel module of a card's VFs, by the card's driver; drivers that are not listed, such as mlx5_core, serve both. */
const vfModules: Readonly<Record<string, string>> = {
  igb: 'igbvf',
  ixgbe: 'ixgbevf',
  i40e: 'iavf',
  ice: 'iavf',
  cxgb4: 'cxgb4vf',
};

/** Drivers that are loaded or built in: for the VFs as network interfaces, and for DPDK. */
export async function checkModules(sysDir: string, { pfs, vfs }: Cards): Promise<Finding[]> {
  if (pfs.length === 0) return [];
  const loaded = new Set(await listNames(join(sysDir, 'bus/pci/drivers')));
  const drivers = [...new Set(pfs.flatMap(({ driver }) => driver ?? []))].sort();
  const needed = [...new Set(drivers.map((driver) => vfModules[driver] ?? driver))];
  const findings = needed.map((module) => {
    const check = `module ${module}`;
    const isThere = loaded.has(module) || loaded.has(module.replaceAll('_', '-'));
    if (isThere) return ok(check, 'loaded');
    return warning(
      check,
      `not loaded: VFs get no network interface`,
      `modprobe ${module}, and list it in /etc/modules-load.d`,
    );
  });
  return [...findings, checkVfio(loaded), ...checkUnbound(vfs)];
}

function checkVfio(loaded: Set<string>): Finding {
  const check = 'module vfio-pci';
  if (loaded.has('vfio-pci')) return ok(check, 'loaded');
  const message = 'not loaded: claims with driver: vfio-pci (DPDK) fail';
  return warning(check, message, 'modprobe vfio-pci, and list it in /etc/modules-load.d');
}

function checkUnbound(vfs: Cards['vfs']): Finding[] {
  const unbound = vfs.filter(({ driver }) => driver === undefined).map(({ pciAddress }) => pciAddress);
  if (unbound.length === 0) return [];
  const message = `${unbound.length} VFs have no driver, and so no interface: ${unbound[0]}${unbound.length > 1 ? ' …' : ''}`;
  const fix = `echo ${unbound[0]} > /sys/bus/pci/drivers_probe; if it stays so, the log of the kernel says why`;
  return [warning('VF drivers', message, fix)];
}
