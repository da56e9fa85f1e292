import type { FuzzTarget } from '../../../fuzz/target.ts';

const kept: Uint8Array[] = [];

export const target: FuzzTarget = {
  name: 'leak',
  errors: [],
  covers: ['test/integration/fuzzer/planted/leak.ts'],
  seeds: () => [Buffer.from('aaaa')],
  run() {
    kept.push(new Uint8Array(64 * 1024));
  },
};
