import type { StoredDevice } from '../model/index.ts';
import type { Attachments } from './attachments.ts';
import type { VfControl } from './host-vfs.ts';
import { toVfWanted } from './vf-wanted.ts';

/** Detaches VFs from their sandboxes. */
export type VfDetacher = Pick<Attachments, 'detach' | 'forget'>;

/**
 * Detaches a VF and restores its snapshot. If detaching could not restore everything, it is tried once more after the reset
 * of the function. But not if the snapshot from before the claim includes the interface: the state from the time of attaching
 * contains the claim's own changes, such as its MAC, and must not overwrite that snapshot.
 * @param device copy of the stored device; its attachment is removed once it is detached
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
  // A stored attachment would make the end of the sandbox restore the state from the time of attaching, before the claim is
  // deleted.
  if (device.attachment !== undefined) attachments.forget(claimUid, device);
}
