import type { Bench } from '../bench.ts';
import { goBench, goHookBench, goLargeBench } from './go.ts';
import { memoryBench } from './memory.ts';
import { podBench } from './pod.ts';
import { restBench } from './rest.ts';
import { startBench } from './start.ts';

/** In the order in which they run. */
export const allBenches: readonly Bench[] = [
  startBench,
  podBench,
  memoryBench,
  restBench,
  goBench,
  goHookBench,
  goLargeBench,
];
