import type { FuzzTarget } from '../../fuzz/target.ts';

const kept: number[][] = [];

/** What an input with a 0xff in it does. */
const defects: Record<string, (input: Uint8Array) => void | Promise<void>> = {
  'endless-loop': (input) => {
    while (input.includes(0xff)) input.at(0);
  },
  memory: () => {
    for (;;) kept.push(Array(100_000).fill(0.5));
  },
  'wrong-error': () => {
    throw new TypeError('not announced');
  },
};

/** A target with the defect that PLANTED_DEFECT names. */
export const target: FuzzTarget = {
  name: 'planted',
  errors: [RangeError],
  seeds: () => [Buffer.from('aaaa')],
  run(input) {
    if (input.length > 1000) throw new RangeError('announced');
    return input.includes(0xff) ? defects[process.env.PLANTED_DEFECT ?? '']?.(input) : undefined;
  },
};
