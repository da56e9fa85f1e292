import { defineConfig } from 'vitest/config';

/** The built site in a real browser. */
export default defineConfig({
  root: import.meta.dirname,
  test: { name: 'site', include: ['test/*.test.ts'], testTimeout: 300_000, hookTimeout: 900_000 },
});
