/**
 * Driver activity that occurs only on nodes with real VFs, where no suite of containers runs: writes to sysfs by a
 * child process, which it kills, and programs that it runs. Traced by scripts/seccomp.ts.
 */
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { systemClock } from '../src/lib/clock.ts';
import { KernelWriter } from '../src/node/sriov/index.ts';

const dir = mkdtempSync(join(tmpdir(), 'netdra-seccomp-exercise-'));
try {
  const path = join(dir, 'unbind');
  writeFileSync(path, '');
  using writer = new KernelWriter({ clock: systemClock });
  await writer.write(path, '0000:3b:02.1', '0000:3b:02.1');
  await promisify(execFile)('true');
} finally {
  rmSync(dir, { recursive: true });
}
