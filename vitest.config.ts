import { accessSync, constants, mkdtempSync, rmSync, statfsSync, writeFileSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { defineConfig } from 'vitest/config';

/** A condition may become true late where everything else runs beside the test: 1 s is the default. */
const patient = { poll: { timeout: 10_000 } };

/** Most unit tests write small files, which takes half of their time on a disk. */
const memoryDir = canServe('/dev/shm') ? '/dev/shm' : tmpdir();

/** Returns whether files can be executed in a directory, and there is room for them. Docker mounts /dev/shm with noexec and 64 MB. */
function canServe(dir: string): boolean {
  try {
    const { bavail, bsize } = statfsSync(dir);
    const probeDir = mkdtempSync(join(dir, 'netdra-'));
    const program = join(probeDir, 'program');
    try {
      writeFileSync(program, '', { mode: 0o755 });
      accessSync(program, constants.X_OK);
    } finally {
      rmSync(probeDir, { recursive: true });
    }
    return bavail * bsize > 500e6;
  } catch {
    return false;
  }
}

/** Half of the time of small files would be loading the same modules: none of them keeps anything. */
const sharedModules = { isolate: false, experimental: { viteModuleRunner: false, nodeLoader: false } };

/** Of the tests that run inside namespaces of their own (scripts/in-node.sh), one file at a time. */
const onNode = {
  testTimeout: 300_000,
  expect: patient,
  hookTimeout: 300_000,
  fileParallelism: false,
  ...sharedModules,
};

const cPrograms = ['test/integration/programs/**/*.test.ts', 'test/integration/consumer.test.ts'];

/**
 * `quick` needs neither root nor a container runtime. `integration` and `programs` need this machine's kernel, and are
 * run as root, or in a user namespace; `programs` a C compiler, `tools` Go, too, and `e2e-node` a real containerd.
 */
export default defineConfig({
  test: {
    projects: [
      {
        test: {
          name: 'quick',
          include: ['test/unit/**/*.test.ts'],
          testTimeout: 60_000,
          expect: patient,
          env: { TMPDIR: memoryDir },
          ...sharedModules,
          // Many of the tests wait, for a process or a deadline.
          maxWorkers: availableParallelism() + 1,
        },
      },
      {
        test: {
          name: 'integration',
          include: ['test/integration/**/*.test.ts'],
          exclude: cPrograms,
          ...onNode,
        },
      },
      { test: { name: 'programs', include: cPrograms, ...onNode } },
      { test: { name: 'tools', include: ['test/tools/**/*.test.ts'], ...onNode } },
      {
        test: {
          name: 'neighbours',
          include: ['e2e/neighbours/**/*.test.ts'],
          testTimeout: 120_000,
          expect: patient,
          // The first one builds programs in Go.
          hookTimeout: 900_000,
          fileParallelism: false,
        },
      },
      {
        test: {
          name: 'e2e-node',
          include: ['e2e/node/cases/**/*.test.ts'],
          ...onNode,
        },
      },
    ],
  },
});
