import { defineConfig } from 'vitest/config';
import { caseTags } from './case-tags.ts';
import { olderVariable } from './programs.ts';

/** The cases on a real cluster of one node. Started by run.ts, which passes the paths of its programs. */
export default defineConfig({
  root: import.meta.dirname,
  test: {
    name: 'e2e-cluster',
    include: ['*.test.ts', 'api/*.test.ts'],
    // Only run.ts and scripts/test-all.ts provide a second set of programs.
    exclude: process.env[olderVariable] === undefined ? ['upgrade.test.ts'] : [],
    testTimeout: 180_000,
    expect: { poll: { timeout: 30_000 } },
    // The table at the end of `npm run test:all` has the first line of a failure only.
    chaiConfig: { truncateThreshold: 500 },
    hookTimeout: 300_000,
    fileParallelism: false,
    tags: caseTags,
  },
});
