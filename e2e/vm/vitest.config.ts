import { join } from 'node:path';
import { defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

/**
 * After a PF was without a carrier, its VFs have a taint for a while, the longer the more often it was: the next case waits for its end.
 * The case that takes it most often comes last.
 */
class LacpLast extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const isLast = ({ moduleId }: TestSpecification) => moduleId.endsWith('/lacp.test.ts');
    return (await super.sort(files)).toSorted((a, b) => Number(isLast(a)) - Number(isLast(b)));
  }
}

/**
 * The cases that need real SR-IOV: they run in the machine of scripts/in-vm.sh. Its processors are emulated, so that
 * everything takes ten to thirty times as long: one process for all files, and generous timeouts.
 */
export default defineConfig({
  root: import.meta.dirname,
  // The repository is read-only.
  cacheDir: '/tmp/netdra-vitest',
  test: {
    fsModuleCache: false,
    // Node.js strips the types itself, in a fraction of the time.
    experimental: { viteModuleRunner: false, nodeLoader: false },
    name: 'e2e-vm',
    include: ['cases/**/*.test.ts'],
    pool: 'forks',
    isolate: false,
    fileParallelism: false,
    sequence: { sequencer: LacpLast },
    testTimeout: 300_000,
    // The default of 1 s is not enough in the emulator.
    expect: { poll: { timeout: 60_000 } },
    hookTimeout: 300_000,
    teardownTimeout: 120_000,
    reporters: ['default', 'junit'],
    outputFile: { junit: join(process.env.NETDRA_RESULTS ?? '/tmp', 'junit.xml') },
  },
});
