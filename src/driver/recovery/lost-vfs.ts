import type { DeviceList } from '../devices/device-list.ts';

/**
 * Recreates simulated VFs that are in another network namespace although no claim has them: nothing else uses them. A
 * real one may be in use by a CNI plugin and stays where it is.
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
