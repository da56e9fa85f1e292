import type { FuzzTarget } from '../../../fuzz/target.ts';

export const target: FuzzTarget = {
  name: 'endless-wait',
  errors: [],
  covers: ['test/integration/fuzzer/planted/endless-wait.ts'],
  seeds: () => [Buffer.from('aaaa')],
  run: (input) => new Promise((resolve) => (input.includes(0xff) ? undefined : resolve())),
};
