/** How many inputs a random comparison makes, and from which seed, as parameters of fast-check. */
export interface FuzzAmount {
  seed: number;
  numRuns: number;
  interruptAfterTimeLimit?: number;
}

/** Variables for the process of a comparison that takes this long, all its tests together. */
export function fuzzEnv(seconds: number, seed: number): Record<string, string> {
  return { NETDRA_FUZZ_SECONDS: String(seconds), NETDRA_FUZZ_SEED: String(seed) };
}

/**
 * Reads the variables of {@link fuzzEnv}. Without them, the number of inputs is fixed, so that a busy machine makes as many as an
 * idle one, and the seed is new in each run.
 * @param tests number of tests that share the duration
 * @returns the amount for each test, and how long one may take
 */
export function readFuzzAmount(numRuns: number, tests: number): { amount: FuzzAmount; timeoutMs: number } {
  const { NETDRA_FUZZ_SECONDS: seconds, NETDRA_FUZZ_SEED: seed = Date.now() } = process.env;
  const limitMs = seconds === undefined ? undefined : (Number(seconds) * 1_000) / tests;
  const runs = limitMs === undefined ? { numRuns } : { numRuns: 10_000_000, interruptAfterTimeLimit: limitMs };
  return { amount: { seed: Number(seed), ...runs }, timeoutMs: (limitMs ?? 0) + 120_000 };
}
