import { execFileSync } from 'node:child_process';
import { isDeepStrictEqual } from 'node:util';
import { expect, test } from 'vitest';
import { hostVfStates, type VfState } from './vfs.ts';
import { VmNode } from './vm-node.ts';

/**
 * `it` with fixtures for cases on VFs. `node`: a node with its driver, one for all files, since starting takes half a
 * minute here. `vfs`: all VFs before the case; after it, with all pods ended, they must be the same again.
 */
export const it = test
  .extend('driverPath', { scope: 'worker' }, () => {
    const path = process.env.NETDRA_DRIVER;
    if (path === undefined) throw new Error('these cases run in the machine of scripts/in-vm.sh only');
    return path;
  })
  .extend('node', { scope: 'worker' }, async ({ driverPath }, { onCleanup }) => {
    const node = await VmNode.start(driverPath);
    onCleanup(() => node[Symbol.asyncDispose]());
    return node;
  })
  // If a case has stopped the driver, it is only restarted if another case follows.
  .extend('driver', { auto: true }, ({ node }) => node.startDriver())
  .extend('vfs', async ({ node }, { onCleanup }) => {
    const before = hostVfStates();
    expect(before).toHaveLength(14);
    // A PF that a case before has touched is without a carrier for a while, and its VFs have the taint longer.
    const tainted = () => node.offeredDevices().filter(({ taints }) => taints !== undefined);
    await expect.poll(tainted, { timeout: 60_000 }).toEqual([]);
    onCleanup(async () => {
      if (node.bench.claimFiles().length > 0) await node.startDriver();
      await node.bench.endAllPods();
      const changed = () => {
        const after = hostVfStates();
        return before.flatMap((was) => {
          const is = after.find(({ pciAddress }) => pciAddress === was.pciAddress);
          return isDeepStrictEqual(is, was) ? [] : [{ was, is: is ?? whereIs(was) }];
        });
      };
      const notAtOnce = changed();
      if (notAtOnce.length > 0) console.warn('not restored at once:', notAtOnce, node.driverReport());
      // What could not be restored at once is tried again, and not offered until then.
      await expect.poll(changed, { timeout: 30_000, interval: 1_000 }).toEqual([]);
      expect(node.bench.claimFiles()).toEqual([]);
    });
    return before;
  });

/** What is known of a VF without an interface in the host's namespace. */
function whereIs({ pciAddress }: VfState): string {
  const device = `/sys/bus/pci/devices/${pciAddress}`;
  const script = `ls -l ${device}/driver ${device}/net; dmesg | grep -E 'igbvf|vfio|${pciAddress}' | tail -20`;
  return execFileSync('bash', ['-c', `{ ${script}; } 2>&1`]).toString();
}
