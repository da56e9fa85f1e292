import type { FuzzTarget } from '../../../fuzz/target.ts';

export const target: FuzzTarget = {
  name: 'stray-rejection',
  errors: [Error],
  covers: ['test/integration/fuzzer/planted/stray-rejection.ts'],
  seeds: () => [Buffer.from('aaaa')],
  async run(input) {
    if (input.includes(0xff)) void Promise.reject(new Error('nobody waits for this'));
  },
};
