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
/** A target that needs more, for one input or since it keeps memory, ends with an error. */
const maxHeapMiB = 320;
/** For the start of the process and the last input. */
const defaultGraceMs = 20_000;

/**
 * Fuzzes a target in a process of its own. Its end is a finding, too: an endless loop, too much memory, an unhandled
 * rejection.
 * @param url of the file that exports the target
 * @param seconds a whole number
 * @param graceMs how much longer than `seconds` it may take
 */
export async function fuzzTarget(url: URL, seconds: number, seed: number, graceMs = defaultGraceMs): Promise<Report> {
  const dir = mkdtempSync(join(tmpdir(), 'netdra-fuzz-'));
  const lastInputPath = join(dir, 'last-input');
  const filesDir = join(dir, 'files');
  mkdirSync(filesDir);
  try {
    const args = [`--max-old-space-size=${maxHeapMiB}`, programPath, url.href, seconds, seed, lastInputPath].map(
      String,
    );
    const child = spawn(process.execPath, args, {
      env: { ...process.env, [scratchVariable]: filesDir },
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: seconds * 1000 + graceMs,
      killSignal: 'SIGKILL',
    });
    const ended = new Promise<number | null>((resolve, reject) => child.once('error', reject).once('close', resolve));
    const [code, stdout, stderr] = await Promise.all([ended, text(child.stdout), text(child.stderr)]);
    if (code === 0) return reportOf(JSON.parse(stdout));
    // It never got to an input: the target is broken.
    if (!existsSync(lastInputPath)) throw new Error(`${url.href} cannot be fuzzed: ${stderr}`);
    const message = code === null && stderr === '' ? `no end after ${Math.round(seconds + graceMs / 1000)} s` : stderr;
    return { inputs: undefined, findings: [{ message, input: readFileSync(lastInputPath) }] };
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

function reportOf({ inputs, failure }: Outcome): Report {
  if (failure === undefined) return { inputs, findings: [] };
  return { inputs, findings: [{ message: failure.message, input: Buffer.from(failure.input, 'base64') }] };
}
