import { join } from 'node:path';
import { readOptionalText } from './sysfs-files.ts';

/** RDMA mode of a node: an RDMA device is visible in all network namespaces (`shared`), or only in its own (`exclusive`). */
export type RdmaNetnsMode = 'shared' | 'exclusive';

/**
 * Reads the RDMA mode of the node. netdra never sets it: the kernel changes it only while there are no other namespaces.
 * @param root mount point of sysfs
 * @returns `undefined` if the module `ib_core` is not loaded
 * Source: Linux, drivers/infiniband/core/device.c, `netns_mode`; the same variable as `RDMA_NLDEV_SYS_ATTR_NETNS_MODE`.
 */
export async function readRdmaNetnsMode(root: string): Promise<RdmaNetnsMode | undefined> {
  const isShared = await readOptionalText(join(root, 'module/ib_core/parameters/netns_mode'));
  if (isShared === undefined) return undefined;
  return isShared === 'N' ? 'exclusive' : 'shared';
}
