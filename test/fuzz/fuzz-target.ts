import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import type { Report } from './report.ts';
import type { Outcome } from './run-target.ts';
import { scratchVariable } from './scratch.ts';

const programPath = fileURLToPath(new URL('run-target.ts', import.meta.url));
/** A target that uses more, for one input or by leaking memory, fails with an error. */
const maxHeapMiB = 320;
/** CPU time for the start of the process and its last input. Not elapsed time, which a busy machine stretches. */
const defaultGraceSeconds = 10;
/** Elapsed time for the same, for a target that waits. */
const maxWaitSeconds = 300;

/**
 * Fuzzes a target in a separate process. If that dies, this is a finding, too: an endless loop, too much memory, an
 * unhandled rejection.
 * @param url of the file that exports the target
 * @param seconds a whole number
 * @param graceSeconds CPU time that it may use beyond `seconds`, at one and a half processors
 */
export async function fuzzTarget(
  url: URL,
  seconds: number,
  seed: number,
  graceSeconds = defaultGraceSeconds,
): Promise<Report> {
  const dir = mkdtempSync(join(tmpdir(), 'netdra-fuzz-'));
  const lastInputPath = join(dir, 'last-input');
  const filesDir = join(dir, 'files');
  mkdirSync(filesDir);
  try {
    const args = [`--max-old-space-size=${maxHeapMiB}`, programPath, url.href, seconds, seed, lastInputPath].map(
      String,
    );
    const cpuSeconds = Math.ceil(1.5 * seconds) + graceSeconds;
    const child = spawn('prlimit', [`--cpu=${cpuSeconds}`, process.execPath, ...args], {
      env: { ...process.env, [scratchVariable]: filesDir },
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: (seconds + maxWaitSeconds) * 1000,
      killSignal: 'SIGKILL',
    });
    const ended = new Promise<number | null>((resolve, reject) => child.once('error', reject).once('close', resolve));
    const [code, stdout, stderr] = await Promise.all([ended, text(child.stdout), text(child.stderr)]);
    if (code === 0) return reportOf(JSON.parse(stdout));
    if (!existsSync(lastInputPath)) {
      return { inputs: undefined, findings: [{ message: `the target cannot be fuzzed: ${stderr}` }] };
    }
    const message =
      code === null && stderr === ''
        ? `no end after ${cpuSeconds} s of CPU time, or ${maxWaitSeconds} s more than its share`
        : stderr;
    return { inputs: undefined, findings: [{ message, input: readFileSync(lastInputPath) }] };
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

function reportOf({ inputs, failure }: Outcome): Report {
  if (failure === undefined) return { inputs, findings: [] };
  return { inputs, findings: [{ message: failure.message, input: Buffer.from(failure.input, 'base64') }] };
}
