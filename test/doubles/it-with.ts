import { it } from 'vitest';

/** `it` for tests that are given a bench of their own, which is disposed of at their end. */
export function itWith<B extends AsyncDisposable>(start: () => Promise<B>) {
  return it.extend<{ own: B }>({
    own: async ({ task: _ }, use) => {
      await using bench = await start();
      await use(bench);
    },
  });
}
