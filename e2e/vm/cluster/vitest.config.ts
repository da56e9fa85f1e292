import { defineConfig } from 'vitest/config';

/** The cases on a real kubelet with real VFs. Started by run.ts, which passes the paths of their programs. */
export default defineConfig({
  root: import.meta.dirname,
  test: {
    name: 'e2e-vm-cluster',
    include: ['*.test.ts'],
    testTimeout: 900_000,
    hookTimeout: 600_000,
    fileParallelism: false,
  },
});
