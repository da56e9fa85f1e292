import type { BenchResult } from './result.ts';

/** How thoroughly to measure. */
export type Effort = 'full' | 'smoke';

export interface BenchOptions {
  effort: Effort;
  /** The program as it is shipped: what `npm run bundle` makes. */
  imageDir: string;
  /** On a disk, as the kubelet's directories are; removed by the caller. */
  workDir: string;
  /** Tells how far it is. */
  progress: (line: string) => void;
}

/** A group of measurements that share what they run on. */
export interface Bench {
  name: string;
  run(options: BenchOptions): Promise<BenchResult>;
}
