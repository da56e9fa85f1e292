import { errnoCode } from '../../lib/errors.ts';

const mount = 'sysfs must be mounted writable, and the driver must run as root';
const gone = 'the device was removed, or its driver is bound anew: the driver of the node retries';

/** Hints for errors of writes to any file of sysfs. */
const common: Readonly<Record<string, string>> = {
  EROFS: mount,
  EACCES: mount,
  EPERM: `${mount}; the kernel may also be locked down`,
  ENOENT: gone,
  ENODEV: gone,
  EAGAIN: 'the card is busy, such as with a reset: this is tried again',
  EBUSY: 'end the process or virtual machine that holds the device',
};

/**
 * Returns whether a write was refused for a temporary reason: the driver or the card's firmware may be busy, for example with
 * a reset.
 */
export function isBusy(cause: unknown): boolean {
  return ['EAGAIN', 'EBUSY'].includes(errnoCode(cause) ?? '');
}

/**
 * Returns the hint for a failed write to sysfs.
 * @param own hints by errno for this file, which come before the common ones
 */
export function writeHint(cause: unknown, own: Readonly<Record<string, string>> = {}): string {
  const code = errnoCode(cause) ?? '';
  return own[code] ?? common[code] ?? 'the kernel log says why';
}

/**
 * Returns the hint for a failed write to `sriov_numvfs`, by the errors of the kernel's `sriov_numvfs_store` and
 * `sriov_enable`, and of the drivers that they call.
 */
export function numVfsHint(cause: unknown, totalVfs: number): string {
  const limit =
    totalVfs === 0
      ? 'the card can have none: switch SR-IOV on in its firmware'
      : `the card can have ${totalVfs}: lower numVfs in the inventory policy, or raise the number in the firmware of the card`;
  return writeHint(cause, {
    ERANGE: limit,
    EINVAL: limit,
    ENOSPC: `no interrupt vectors are left for so many VFs: lower numVfs in the inventory policy, or the number of queues of the PF; ${limit}`,
    ENOMEM:
      'no memory-mapped I/O space is left for the VFs: switch on SR-IOV and "Above 4G decoding" in the firmware of the machine, or boot with pci=realloc',
    EBUSY: 'the PF has VFs already, or they are in use: end what uses them, and write 0 into sriov_numvfs',
    ENOENT:
      'the PF has no driver, or one that cannot switch VFs on: bind its kernel driver; vfio-pci needs its module option enable_sriov=1',
    EOPNOTSUPP:
      'the driver of the PF cannot switch VFs on in its present mode, such as switchdev or XDP: the kernel log says why',
    EIO: 'the firmware of the card has refused: the kernel log says why',
  });
}
