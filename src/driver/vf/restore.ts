import type { StoredDevice } from '../model/index.ts';
import type { Attachments } from './attachments.ts';
import type { VfControl } from './host-vfs.ts';
import { toVfWanted } from './vf-wanted.ts';

/** Detaches VFs from their sandboxes. */
export type VfDetacher = Pick<Attachments, 'detach' | 'forget'>;

/**
 * Detaches a VF and restores its snapshot. If detaching could not restore everything, tries once more after the function
 * was reset; not if the snapshot from before the claim includes the interface: the state at the time of attaching contains
 * the claim's own changes, such as its MAC, and must not overwrite that snapshot.
 * @param device a copy of what is stored: once it is detached it has no attachment
 * @throws the last failure
 */
export async function restore(
  { attachments, control }: { attachments: VfDetacher; control: Pick<VfControl, 'restore'> },
  claimUid: string,
  device: StoredDevice,
): Promise<void> {
  const { before, config } = device;
  const changed = toVfWanted(config).vf ?? {};
  const detach = () => attachments.detach(claimUid, device);
  const isDetached = await detach().then(
    () => true,
    () => false,
  );
  const errors: unknown[] = [];
  if (before !== undefined)
    await control.restore(device, before, { changed }).catch((error: unknown) => errors.push(error));
  if (!isDetached && before?.link === undefined) await detach();
  if (errors.length > 0) throw errors[0];
  // Otherwise the end of its sandbox would restore the state at the time of attaching, before the claim is deleted.
  if (device.attachment !== undefined) attachments.forget(claimUid, device);
}
