import type { Bench } from '../bench.ts';
import { containerdBench } from './containerd.ts';
import { goBench, goHookBench, goLargeBench } from './go.ts';
import { hookBench } from './hook.ts';
import { hostileBench } from './hostile.ts';
import { memoryBench } from './memory.ts';
import { publishBench } from './publish.ts';
import { restBench } from './rest.ts';
import { startBench } from './start.ts';

/** In the order in which they run. */
export const allBenches: readonly Bench[] = [
  startBench,
  memoryBench,
  restBench,
  hookBench,
  hostileBench,
  publishBench,
  containerdBench,
  goBench,
  goHookBench,
  goLargeBench,
];
