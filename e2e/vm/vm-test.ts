import { expect, test } from 'vitest';
import { RecordingLogger } from '../../test/doubles/logger.ts';
import { hostVfStates, startVmBench, startVmDriver } from './vm-node.ts';

/**
 * `it` with what every case on VFs needs. `node`: a node with its driver, one for all files, since starting one takes
 * half a minute here. `vfs`: all VFs before the case; after it, with all pods ended, they must be the same again.
 */
export const it = test
  .extend('logger', { scope: 'worker' }, () => new RecordingLogger())
  .extend('node', { scope: 'worker' }, async ({ logger }, { onCleanup }) => {
    const bench = await startVmBench(logger);
    onCleanup(() => bench[Symbol.asyncDispose]());
    await startVmDriver(bench);
    return bench;
  })
  .extend('vfs', { auto: true }, async ({ node }, { onCleanup }) => {
    const before = hostVfStates();
    onCleanup(async () => {
      await node.endAllPods();
      expect(hostVfStates()).toEqual(before);
      expect(node.claimFiles()).toEqual([]);
    });
    return before;
  });
