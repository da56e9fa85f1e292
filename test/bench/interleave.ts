/** One thing that is measured, beside others. */
export interface Case {
  name: string;
  /** Called before each batch, not measured. */
  enter?(): Promise<void>;
  /** Does it once. @returns what it took, in the unit of the bench: what has to be set up for it does not count */
  run(): Promise<number>;
  /** Called after each batch, not measured. */
  leave?(): Promise<void>;
}

export interface Rounds {
  /** How often all cases get their turn. */
  rounds: number;
  /** How often in a row a case is run when it is its turn. */
  perRound: number;
  /** Rounds before these that do not count. */
  warmUpRounds: number;
}

/**
 * Runs cases in turns, a batch of each: what else the machine does meanwhile then meets all of them, and a ratio of
 * two medians says more than either of them.
 * @returns what each case took, in the order of the cases
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
  await each.enter?.();
  try {
    for (let run = 0; run < count; run++) values.push(await each.run());
  } finally {
    await each.leave?.();
  }
  return values;
}

/** How long a task takes, ms. */
export async function timed(task: () => unknown): Promise<number> {
  const startedAtMs = performance.now();
  await task();
  return performance.now() - startedAtMs;
}
