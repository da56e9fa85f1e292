import { defineConfig } from 'vitest/config';

/** The cases of e2e/cluster on a Kubernetes cluster. Started by run.ts, which says where it is. */
export default defineConfig({
  root: import.meta.dirname,
  test: {
    name: 'e2e-kind',
    include: ['cases/**/*.test.ts'],
    // The first pod on a node waits for its image.
    testTimeout: 180_000,
    hookTimeout: 180_000,
    fileParallelism: false,
  },
});
