import type { FuzzTarget } from '../../../fuzz/target.ts';

/** Found only step by step: by chance alone, one input in four thousand million has these four bytes. */
function decode(input: Uint8Array): void {
  if (input[0] !== 0x6e) return;
  if (input[1] !== 0x72) return;
  if (input[2] !== 0x69) return;
  if (input[3] !== 0x21) return;
  throw new TypeError('planted');
}

export const target: FuzzTarget = {
  name: 'nested-bug',
  errors: [RangeError],
  covers: ['test/integration/fuzzer/planted/nested-bug.ts'],
  maxBytes: 64,
  seeds: () => [Buffer.from('seed of a longer kind')],
  run: decode,
};
