import type { DeviceList } from '../devices/device-list.ts';

/**
 * Recreates simulated VFs that are in another network namespace although no claim has them: nothing else uses simulated VFs.
 * Real VFs stay where they are, since a CNI plugin may use them.
 */
export async function recreateLost(
  { vfs, report }: Pick<DeviceList, 'vfs' | 'report'>,
  held: () => ReadonlyMap<string, unknown>,
  signal: AbortSignal,
): Promise<void> {
  if (!vfs.isSimulated) return;
  for (const { pciAddress, reason } of report.excluded) {
    if (signal.aborted) return;
    if (reason === 'interface-elsewhere' && !held().has(pciAddress)) await vfs.recreate(pciAddress);
  }
}
