import { readFileSync } from 'node:fs';
import { cpus, loadavg, release, totalmem } from 'node:os';

/** What the figures depend on. */
export interface Machine {
  processor: string;
  cores: number;
  memoryGb: number;
  kernel: string;
  system: string;
  node: string;
  /** Of the last minute, before anything was measured. */
  load: number;
}

export function describeMachine(): Machine {
  const [first] = cpus();
  const name = /^PRETTY_NAME="?([^"\n]*)/m.exec(readFileSync('/etc/os-release', 'utf8'))?.[1];
  return {
    processor: first?.model.trim() || 'unknown',
    cores: cpus().length,
    memoryGb: Math.round(totalmem() / 2 ** 30),
    // Of the release only what others can find, too.
    kernel: release().split('-', 1)[0] ?? '',
    system: name ?? 'Linux',
    node: process.version,
    load: loadavg()[0] ?? 0,
  };
}
