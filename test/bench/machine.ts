import { readFileSync } from 'node:fs';
import { cpus, loadavg, release, totalmem } from 'node:os';

/** The environment on which the figures depend. */
export interface Machine {
  processor: string;
  cores: number;
  memoryGb: number;
  kernel: string;
  system: string;
  node: string;
  /** Where the drivers keep their state; absent if the measurement does not depend on it. */
  disk?: string;
  /** Load average of the last minute, before any measurement. */
  load: number;
}

export function describeMachine(): Machine {
  const [first] = cpus();
  const name = /^PRETTY_NAME="?([^"\n]*)/m.exec(readFileSync('/etc/os-release', 'utf8'))?.[1];
  return {
    processor: first?.model.trim() || 'unknown',
    cores: cpus().length,
    memoryGb: Math.round(totalmem() / 2 ** 30),
    // Only the public part of the release.
    kernel: release().split('-', 1)[0] ?? '',
    system: name ?? 'Linux',
    node: process.version,
    load: loadavg()[0] ?? 0,
  };
}
