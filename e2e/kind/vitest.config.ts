import { defineConfig } from 'vitest/config';
import { caseTags } from '../cluster/case-tags.ts';

/** The cases of e2e/cluster on a Kubernetes cluster. Started by run.ts, which passes the target. */
export default defineConfig({
  root: import.meta.dirname,
  test: {
    name: 'e2e-kind',
    include: ['cases/**/*.test.ts'],
    // The first pod on a node waits until its image is pulled.
    testTimeout: 180_000,
    expect: { poll: { timeout: 30_000 } },
    // The table at the end of `npm run test:all` has the first line of a failure only.
    chaiConfig: { truncateThreshold: 500 },
    hookTimeout: 180_000,
    fileParallelism: false,
    tags: caseTags,
  },
});
