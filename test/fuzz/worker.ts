import { parentPort, workerData } from 'node:worker_threads';
import { CoverageMeter } from './coverage.ts';
import { Fuzzer, type FuzzProgress, type NewFinding } from './fuzzer.ts';
import { HeapGuard } from './heap-guard.ts';
import { Random } from './random.ts';
import { SharedInput } from './shared-input.ts';
import type { FuzzTarget } from './target.ts';

/** What the thread is started with. */
export interface WorkerTask {
  /** Of the file that exports the target. */
  targetUrl: string;
  seed: number;
  /** In the time of the whole process: `Date.now()`. */
  endsAtMs: number;
  memory: SharedArrayBuffer;
  /** Run just this. */
  replay?: Uint8Array;
  maxFindings?: number;
}

export type WorkerMessage =
  | { type: 'finding'; finding: NewFinding }
  | { type: 'progress' | 'done'; progress: FuzzProgress };

const progressIntervalMs = 500;

async function work(task: WorkerTask, post: (message: WorkerMessage) => void): Promise<void> {
  const rootUrl = new URL('../../', import.meta.url).href;
  using coverage = new CoverageMeter(rootUrl, ['node_modules/', 'test/fuzz/']);
  const { target } = (await import(task.targetUrl)) as { target: FuzzTarget };
  const fuzzer = new Fuzzer(target, {
    random: new Random(task.seed, target.name),
    coverage,
    heap: new HeapGuard(),
    shared: new SharedInput(task.memory),
    onFinding: (finding) => post({ type: 'finding', finding }),
    onBatch: reportProgress(post),
    ...(task.maxFindings === undefined ? {} : { maxFindings: task.maxFindings }),
  });
  const onStray = (error: unknown) => fuzzer.reportStray(error);
  process.on('uncaughtException', onStray);
  process.on('unhandledRejection', onStray);
  try {
    if (task.replay === undefined) await fuzzer.run(performance.now() + task.endsAtMs - Date.now());
    else await fuzzer.replay(task.replay);
  } finally {
    process.off('uncaughtException', onStray);
    process.off('unhandledRejection', onStray);
  }
  post({ type: 'done', progress: fuzzer.progress });
}

function reportProgress(post: (message: WorkerMessage) => void): (progress: () => FuzzProgress) => void {
  let nextMs = 0;
  return (progress) => {
    if (performance.now() < nextMs) return;
    nextMs = performance.now() + progressIntervalMs;
    post({ type: 'progress', progress: progress() });
  };
}

const port = parentPort;
if (port === null) throw new Error('this file is to be run as a worker thread');
// Not awaited here: a thread that ends while something is awaited at the top says so on stderr. What a target has left
// open is no reason to stay.
void work(workerData, (message) => port.postMessage(message)).then(() => process.exit());
