import { expect, test } from 'vitest';
import { hostVfStates } from './vfs.ts';
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
    onCleanup(async () => {
      if (node.bench.claimFiles().length > 0) await node.startDriver();
      await node.bench.endAllPods();
      expect(hostVfStates(), node.driverReport()).toEqual(before);
      expect(node.bench.claimFiles()).toEqual([]);
    });
    return before;
  });
