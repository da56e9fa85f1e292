import type { FuzzTarget } from '../../../fuzz/target.ts';

class AnnouncedError extends Error {}

export const target: FuzzTarget = {
  name: 'announced-errors',
  errors: [AnnouncedError, Error],
  covers: ['test/integration/fuzzer/planted/announced-errors.ts'],
  seeds: () => [Buffer.from('abc')],
  run(input) {
    if (input.length % 2 === 0) throw new AnnouncedError('even');
    if (input.length % 3 === 0) throw new Error('a multiple of three');
  },
};
