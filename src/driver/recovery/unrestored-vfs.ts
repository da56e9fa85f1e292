import { type DeviceKey, formatDeviceKey, isSameDevice } from '../../framework/metadata/index.ts';
import { explain } from '../../lib/errors.ts';
import type { Locks } from '../../lib/keyed-mutex.ts';
import type { Logger } from '../../lib/logger.ts';
import type { UnrestoredVf } from '../model/index.ts';
import type { Store } from '../state/index.ts';
import { restore, type VfControl, type VfDetacher } from '../vf/index.ts';

export interface RestoreVfsOptions {
  store: Pick<Store, 'unrestored' | 'putUnrestored' | 'deleteUnrestored'>;
  attachments: VfDetacher;
  control: VfControl;
  locks: Locks;
  logger: Logger;
}

/**
 * Tries again to restore VFs that could not be restored when their claims were unprepared, and to give VFs without an
 * interface one. All VFs are handled in parallel, since a driver may take ten seconds until it fails to create an interface.
 * An unrestored VF belongs to no claim, so the key of the device is locked.
 * @throws StateError `store-unusable`; the signal's reason if it fires during the wait for a lock
 */
export async function restoreVfs(options: RestoreVfsOptions, signal: AbortSignal): Promise<void> {
  const restoreLocked = ({ device }: UnrestoredVf) =>
    options.locks.run(formatDeviceKey(device), () => restoreOne(options, device), signal);
  await Promise.all(options.store.unrestored().map(restoreLocked));
}

async function restoreOne({ store, attachments, control, logger }: RestoreVfsOptions, key: DeviceKey): Promise<void> {
  // Another instance of the driver may have restored the VF in the meantime.
  const found = store.unrestored().find(({ device }) => isSameDevice(device, key));
  if (found === undefined) return;
  const { device, reason } = found;
  try {
    try {
      // The snapshot is restored afterwards: before its claim, the VF may have had no driver.
      const { before = { vf: {} } } = device;
      if (device.lacksInterface === true) await control.configure(device, { driver: 'default' }, before);
    } finally {
      await restore({ attachments, control }, '', { ...device });
    }
    store.deleteUnrestored(key);
    logger.info({ device: device.name }, 'restored a VF, which is available again');
  } catch (error) {
    const now = explain(error);
    // The same failure is logged only once: a NIC that was removed for good would otherwise fill the log.
    if (now === reason) return;
    logger.warn({ device: device.name, err: error }, 'cannot restore a VF yet; the driver retries every minute');
    store.putUnrestored({ device, reason: now });
  }
}
