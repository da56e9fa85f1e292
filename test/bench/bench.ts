import type { BenchResult } from './result.ts';

/** Thoroughness of the measurements. */
export type Effort = 'full' | 'smoke';

export interface BenchOptions {
  effort: Effort;
  /** The shipped program: the output of `npm run bundle`. */
  imageDir: string;
  /** On a disk, like the kubelet's directories; removed by the caller. */
  workDir: string;
  /** A commit whose program is measured in turns with ours, by benches that can. */
  against?: string | undefined;
  /** Reports the progress. */
  progress: (line: string) => void;
}

/** A group of measurements in a shared environment. */
export interface Bench {
  name: string;
  run(options: BenchOptions): Promise<BenchResult>;
}
