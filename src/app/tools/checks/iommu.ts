import { join } from 'node:path';
import { isVfio } from '../../../node/sriov/index.ts';
import { listNames, readText } from '../files.ts';
import { type Finding, ok, problem, warning } from '../finding.ts';
import type { Cards } from './cards.ts';

export interface IommuCheck {
  sysDir: string;
  procDir: string;
  cards: Cards;
}

/** Without an IOMMU nothing can be handed to user space; VFs as network interfaces do not need it. */
export async function checkIommu({ sysDir, procDir, cards }: IommuCheck): Promise<Finding[]> {
  const check = 'IOMMU';
  const groups = await listNames(join(sysDir, 'kernel/iommu_groups'));
  const names = await Promise.all(groups.map((group) => readText(join(sysDir, 'kernel/iommu_groups', group, 'name'))));
  // vfio creates groups of its own in its mode without an IOMMU.
  const count = names.filter((name) => name !== 'vfio-noiommu').length;
  if (count === 0) return [await findingWithout(check, sysDir, procDir, cards)];
  const units = await listNames(join(sysDir, 'class/iommu'));
  return [ok(check, `on (${units.join(', ') || 'unnamed'}), ${count} groups`), ...checkShared(cards)];
}

async function findingWithout(check: string, sysDir: string, procDir: string, cards: Cards): Promise<Finding> {
  const mode = await readText(join(sysDir, 'module/vfio/parameters/enable_unsafe_noiommu_mode'));
  const inUserSpace = cards.vfs.filter(({ driver }) => isVfio(driver ?? '')).length;
  const fix = fixFor((await readText(join(procDir, 'cmdline'))) ?? '');
  if (mode === 'Y') {
    return warning(check, 'off; vfio works in its unsafe mode: a DPDK program can read and write all memory', fix);
  }
  if (inUserSpace > 0) return problem(check, `off, but ${inUserSpace} VFs are bound to vfio-pci`, fix);
  return warning(check, 'off: claims with driver: vfio-pci (DPDK) fail; network interfaces do not need it', fix);
}

function fixFor(commandLine: string): string {
  const isAsked = /\b(intel_iommu=on|amd_iommu=on)\b/.test(commandLine);
  return isAsked
    ? 'the kernel command line enables it, so switch on VT-d or AMD-Vi in the firmware'
    : 'switch on VT-d or AMD-Vi in the firmware, and boot with intel_iommu=on iommu=pt (AMD: iommu=pt)';
}

function checkShared({ vfs }: Cards): Finding[] {
  const shared = vfs.filter(({ iommuPeers }) => iommuPeers.length > 0);
  if (shared.length === 0) return [];
  const message = `${shared.length} VFs share their group with others, and go to user space only together: ${shared[0]?.pciAddress} …`;
  return [warning('IOMMU groups', message, 'switch on ACS in the firmware, or use another slot')];
}
