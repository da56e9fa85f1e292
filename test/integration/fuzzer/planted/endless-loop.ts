import type { FuzzTarget } from '../../../fuzz/target.ts';

export const target: FuzzTarget = {
  name: 'endless-loop',
  errors: [],
  covers: ['test/integration/fuzzer/planted/endless-loop.ts'],
  seeds: () => [Buffer.from('aaaa')],
  run(input) {
    while (input.includes(0xff)) input.at(0);
  },
};
