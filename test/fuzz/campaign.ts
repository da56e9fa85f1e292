import { readdirSync } from 'node:fs';
import { basename } from 'node:path';
import { type FuzzTargetOptions, fuzzTarget, type TargetReport } from './fuzz-target.ts';

const targetsUrl = new URL('./targets/', import.meta.url);

/** The names of all targets: those of the files in `targets/`. */
export function listTargets(): string[] {
  return readdirSync(targetsUrl)
    .map((file) => basename(file, '.ts'))
    .sort();
}

export interface CampaignOptions {
  /** For all targets together, start of the threads included. */
  durationMs: number;
  seed: number;
  /** Default: all. */
  targets?: readonly string[];
  /** Runs just this input. */
  replay?: Uint8Array;
  onReport?: (report: TargetReport) => void;
}

/**
 * Fuzzes targets one after the other, each for its share of the time.
 * @throws Error for a target that does not exist
 */
export async function runCampaign(options: CampaignOptions): Promise<TargetReport[]> {
  const { targets = listTargets(), seed, replay, onReport } = options;
  const unknown = targets.filter((name) => !listTargets().includes(name));
  if (unknown.length > 0) {
    throw new Error(`no target ${unknown.join(', ')}; there are ${listTargets().join(', ')}`);
  }
  const endsAtMs = performance.now() + options.durationMs;
  const reports: TargetReport[] = [];
  for (const [index, name] of targets.entries()) {
    const task: FuzzTargetOptions = {
      name,
      targetUrl: new URL(`${name}.ts`, targetsUrl).href,
      seed,
      durationMs: Math.max(0, endsAtMs - performance.now()) / (targets.length - index),
      ...(replay === undefined ? {} : { replay }),
    };
    const report = await fuzzTarget(task);
    reports.push(report);
    onReport?.(report);
  }
  return reports;
}
