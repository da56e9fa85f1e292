import type { FuzzTarget } from '../../../fuzz/target.ts';

/** Copies members one by one, as code does that has never met `__proto__`. */
function merge(into: Record<string, unknown>, from: Record<string, unknown>): void {
  for (const [key, value] of Object.entries(from)) {
    if (typeof value === 'object' && value !== null) {
      into[key] ??= {};
      merge(into[key] as typeof into, value as typeof from);
    } else into[key] = value;
  }
}

export const target: FuzzTarget = {
  name: 'prototype-pollution',
  errors: [TypeError, SyntaxError],
  covers: ['test/integration/fuzzer/planted/prototype-pollution.ts'],
  shape: 'json',
  seeds: () => [Buffer.from('{"a":{"b":1}}')],
  run(input) {
    merge({}, JSON.parse(Buffer.from(input).toString()));
  },
};
