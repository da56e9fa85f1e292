/** One of several cases that are measured in turns. */
export interface Case {
  name: string;
  /** Runs once. @returns the measured value, in the unit of the bench, without any set-up */
  run(): Promise<number>;
}

export interface Rounds {
  /** Number of turns of all cases. */
  rounds: number;
  /** Number of consecutive runs of a case in its turn. */
  perRound: number;
  /** Number of warm-up rounds, which do not count. */
  warmUpRounds: number;
}

/**
 * Runs cases in turns, a batch of each: other load on the machine then affects all of them alike, and a ratio of
 * two medians is more meaningful than either of them.
 * @returns the values of each case, in the order of the cases
 */
export async function interleave(cases: readonly Case[], rounds: Rounds): Promise<number[][]> {
  const values = cases.map((): number[] => []);
  for (let round = -rounds.warmUpRounds; round < rounds.rounds; round++) {
    for (const [index, each] of cases.entries()) {
      const taken = await runBatch(each, rounds.perRound);
      if (round >= 0) values[index]?.push(...taken);
    }
  }
  return values;
}

async function runBatch(each: Case, count: number): Promise<number[]> {
  const values: number[] = [];
  for (let run = 0; run < count; run++) values.push(await each.run());
  return values;
}

/** Duration of a task, ms. */
export async function timed(task: () => unknown): Promise<number> {
  const startedAtMs = performance.now();
  await task();
  return performance.now() - startedAtMs;
}
