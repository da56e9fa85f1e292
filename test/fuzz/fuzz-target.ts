import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import type { Finding, FindingKind } from './finding.ts';
import type { FuzzProgress } from './fuzzer.ts';
import { scratchVariable } from './scratch.ts';
import { SharedInput } from './shared-input.ts';
import type { WorkerMessage, WorkerTask } from './worker.ts';

export interface FuzzTargetOptions {
  name: string;
  /** Of the file that exports it. */
  targetUrl: string;
  seed: number;
  durationMs: number;
  /** Runs just this input. */
  replay?: Uint8Array;
  /** Ends early with so many different findings. Default 8. */
  maxFindings?: number;
  /** CPU time that one input may take, with all threads of the process counted, collecting garbage too; default 1,000. */
  maxInputCpuMs?: number;
}

export interface TargetReport extends FuzzProgress {
  target: string;
  seed: number;
  durationMs: number;
  findings: Finding[];
}

/** After this long without an end it does not matter that the machine may be busy. */
const maxInputMs = 30_000;
const watchIntervalMs = 50;
/** A thread that needs more ends, and takes nobody with it. */
const maxHeapMiB = 320;

/** Fuzzes one target in a thread of its own, which may hang or run out of memory. */
export async function fuzzTarget(options: FuzzTargetOptions): Promise<TargetReport> {
  const { name, seed } = options;
  const startedMs = performance.now();
  const shared = new SharedInput();
  const task: WorkerTask = {
    targetUrl: options.targetUrl,
    seed,
    endsAtMs: Date.now() + options.durationMs,
    memory: shared.memory,
    ...(options.replay === undefined ? {} : { replay: options.replay }),
    ...(options.maxFindings === undefined ? {} : { maxFindings: options.maxFindings }),
  };
  const report: TargetReport = {
    ...{ target: name, seed, durationMs: 0, findings: [] },
    ...{ executions: 0, acceptedSeeds: 0, corpusSize: 0, coveragePercent: 0 },
  };
  const dir = mkdtempSync(join(tmpdir(), 'netdra-fuzz-'));
  try {
    const worker = new Worker(new URL('./worker.ts', import.meta.url), {
      workerData: task,
      env: { ...process.env, [scratchVariable]: dir },
      resourceLimits: { maxOldGenerationSizeMb: maxHeapMiB },
    });
    const end = await endOf(worker, shared, report, options.maxInputCpuMs ?? 1_000);
    if (end !== undefined) report.findings.push({ target: name, seed, ...end, input: shared.input });
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
  report.durationMs = performance.now() - startedMs;
  return report;
}

type End = { kind: FindingKind; message: string };

/** @returns what was wrong with the last input; `undefined` if the thread came to its own end */
async function endOf(
  worker: Worker,
  shared: SharedInput,
  report: TargetReport,
  maxInputCpuMs: number,
): Promise<End | undefined> {
  const { promise, resolve, reject } = Promise.withResolvers<End | undefined>();
  const { target, seed } = report;
  let isDone = false;
  worker.on('message', (message: WorkerMessage) => {
    if (message.type === 'finding') report.findings.push({ target, seed, ...message.finding });
    else Object.assign(report, message.progress);
    isDone ||= message.type === 'done';
  });
  worker.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'ERR_WORKER_OUT_OF_MEMORY') {
      resolve({ kind: 'memory', message: `it needs more than ${maxHeapMiB} MiB` });
    } else reject(new Error(`target ${target} cannot be fuzzed`, { cause: error }));
  });
  worker.on('exit', () => {
    resolve(isDone ? undefined : { kind: 'stuck', message: 'it waits for something that will never come' });
  });
  const watch = setInterval(watcher(shared, maxInputCpuMs, resolve), watchIntervalMs);
  try {
    return await promise;
  } finally {
    clearInterval(watch);
    await worker.terminate();
  }
}

/** To be called again and again: tells when one input has taken too long. */
function watcher(shared: SharedInput, maxInputCpuMs: number, onEnd: (end: End) => void): () => void {
  let watched: number | undefined;
  let sinceMs = 0;
  let cpuBefore = process.cpuUsage();
  return () => {
    const { execution } = shared;
    if (execution === undefined || execution !== watched) {
      watched = execution;
      sinceMs = performance.now();
      cpuBefore = process.cpuUsage();
      return;
    }
    const { user, system } = process.cpuUsage(cpuBefore);
    const cpuMs = Math.round((user + system) / 1000);
    if (cpuMs > maxInputCpuMs) onEnd({ kind: 'hang', message: `one input took more than ${cpuMs} ms of CPU time` });
    else if (performance.now() - sinceMs > maxInputMs) {
      onEnd({ kind: 'stuck', message: `no end after ${maxInputMs} ms, with ${cpuMs} ms of CPU time used` });
    }
  };
}
