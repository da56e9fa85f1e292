import type { FuzzTarget } from '../../../fuzz/target.ts';

/** Trusts a length that comes with the input. */
export const target: FuzzTarget = {
  name: 'huge-allocation',
  errors: [],
  covers: ['test/integration/fuzzer/planted/huge-allocation.ts'],
  seeds: () => [Buffer.from('aaaa')],
  run(input) {
    const lists: number[][] = [];
    while (input.includes(0xff)) lists.push(Array(100_000).fill(0.5));
  },
};
