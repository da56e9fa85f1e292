import { join } from 'node:path';
import { isVfio } from '../../node/sriov/index.ts';
import { listNames, readText } from '../files.ts';
import { named, ok, problem, type Verdict, warning } from '../finding.ts';
import type { Cards } from './cards.ts';

/** First kernel that reports the bus address of an interface. The driver finds a VF in a pod by this address. */
const needed = { major: 5, minor: 14 };

/** Checks the version of the kernel. @param simulated whether VFs are simulated; the driver finds them without a bus address */
export async function checkKernel(procDir: string, simulated: boolean): Promise<Verdict[]> {
  const release = await readText(join(procDir, 'sys/kernel/osrelease'));
  const [, major, minor] = /^(\d+)\.(\d+)/.exec(release ?? '') ?? [];
  if (major === undefined)
    return [warning(`its version cannot be read in ${procDir}`, 'run this where /proc is mounted')];
  const isEnough = Number(major) > needed.major || (Number(major) === needed.major && Number(minor) >= needed.minor);
  if (isEnough) return [ok(`Linux ${release}`)];
  const level = simulated ? warning : problem;
  return [level(`Linux ${release} does not report which VF an interface belongs to`, 'use Linux 5.14 or newer')];
}

/** Checks the IOMMU, which only VFs for user space need. */
export async function checkIommu(sysDir: string, procDir: string, cards: Cards): Promise<Verdict[]> {
  const groups = await listNames(join(sysDir, 'kernel/iommu_groups'));
  const names = await Promise.all(groups.map((group) => readText(join(sysDir, 'kernel/iommu_groups', group, 'name'))));
  // Groups without an IOMMU behind them, which vfio creates, do not count.
  const count = names.filter((name) => name !== 'vfio-noiommu').length;
  if (count === 0) return [await withoutIommu(sysDir, procDir, cards)];
  const units = await listNames(join(sysDir, 'class/iommu'));
  return [ok(`on (${units.join(', ') || 'unnamed'}), ${count} groups`), ...checkShared(cards)];
}

async function withoutIommu(sysDir: string, procDir: string, cards: Cards): Promise<Verdict> {
  const mode = await readText(join(sysDir, 'module/vfio/parameters/enable_unsafe_noiommu_mode'));
  const inUserSpace = cards.vfs.filter(({ driver }) => isVfio(driver)).length;
  const isAsked = /\b(intel_iommu=on|amd_iommu=on)\b/.test((await readText(join(procDir, 'cmdline'))) ?? '');
  const fix = isAsked
    ? 'the kernel command line enables it, so switch on VT-d or AMD-Vi in the firmware'
    : 'switch on VT-d or AMD-Vi in the firmware, and boot with intel_iommu=on iommu=pt (AMD: iommu=pt)';
  if (mode === 'Y') {
    return warning('off; vfio works in its unsafe mode: a DPDK program can read and write all memory', fix);
  }
  if (inUserSpace > 0) return problem(`off, but ${inUserSpace} VFs are bound to vfio-pci`, fix);
  return warning('off: claims with driver: vfio-pci (DPDK) fail; network interfaces do not need it', fix);
}

function checkShared({ vfs }: Cards): Verdict[] {
  const shared = vfs.filter(({ iommuPeers }) => iommuPeers.length > 0);
  if (shared.length === 0) return [];
  const message = `${shared.length} VFs share their IOMMU group with other devices, and can be bound to vfio only together: ${shared[0]?.pciAddress} …`;
  return [named('IOMMU groups', warning(message, 'switch on ACS in the firmware, or use another slot'))];
}

/** Checks huge pages, which only DPDK programs need. */
export async function checkHugepages(sysDir: string): Promise<Verdict[]> {
  const dir = join(sysDir, 'kernel/mm/hugepages');
  const sizes = await listNames(dir);
  const pools = await Promise.all(
    sizes.map(async (name) => ({
      sizeKb: Number(/(\d+)kB$/.exec(name)?.[1]),
      total: Number(await readText(join(dir, name, 'nr_hugepages'))),
      free: Number(await readText(join(dir, name, 'free_hugepages'))),
    })),
  );
  const used = pools.filter(({ total }) => total > 0);
  if (used.length === 0) {
    const fix = 'boot with default_hugepagesz=1G hugepagesz=1G hugepages=8, for example, and restart the kubelet';
    return [warning('none: pods that request hugepages, as DPDK programs do, are not scheduled here', fix)];
  }
  return [ok(used.map(({ sizeKb, total, free }) => `${total} of ${formatSize(sizeKb)} (${free} free)`).join(', '))];
}

function formatSize(kilobytes: number): string {
  if (kilobytes >= 1 << 20) return `${kilobytes / (1 << 20)} GiB`;
  return kilobytes >= 1024 ? `${kilobytes / 1024} MiB` : `${kilobytes} KiB`;
}
