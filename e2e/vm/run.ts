/**
 * Boots a machine with real SR-IOV and runs a command in it: `node e2e/vm/run.ts [COMMAND [ARGUMENT...]]`. Called by
 * scripts/in-vm.sh, which describes it.
 */
import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  realpathSync,
  renameSync,
  rmSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { makeImageFiles } from '../../deploy/image/image-files.ts';
import { buildConsumer, buildGate, programsFolder } from '../../programs/build.ts';
import { cacheFolder } from '../../scripts/packages/cache-folder.ts';
import { errnoCode, explain, NetdraError } from '../../src/lib/errors.ts';
import { takeMachineParts } from './parts.ts';
import { compiledFile, runFolders, writeRunFiles } from './run-files.ts';
import { runSession, sessionLimits } from './session.ts';
import type { GuestStreams } from './virtual-machine.ts';

/** The machine failed, not the command: same code as `docker run`. */
const machineExitCode = 125;
/** Followed by our pid: left-overs of a killed run are removed by the next one. */
const runDirPrefix = 'netdra-vm-';

const log = (line: string) => console.error(`netdra: ${line}`);

async function main(command: string[], env: NodeJS.ProcessEnv): Promise<number> {
  const repository = realpathSync(fileURLToPath(new URL('../..', import.meta.url)));
  const timeoutMs = parseTimeout(env.NETDRA_VM_TIMEOUT);
  const resultsDir = env.NETDRA_VM_RESULTS ?? join(repository, 'test-results/vm');
  const { files, lock } = takeMachineParts({ repository, cacheDir: join(cacheFolder(env), 'vm'), log });
  using _lock = lock;
  removeStaleRunDirs();
  const compiled = join(cacheFolder(env), 'vm-compiled.tar');
  const runDir = mkdtempSync(join(tmpdir(), `${runDirPrefix}${process.pid}-`));
  try {
    const terminal = command.length === 0;
    const { rows = 24, columns = 80, isTTY } = process.stdout;
    const colors = isTTY && !terminal ? { FORCE_COLOR: '1' } : {};
    writeRunFiles(runDir, { repository, command, terminal, rows, columns, env: { ...colors, ...env } });
    const programs = { outDir: programsFolder(cacheFolder(env), 'static'), cacheDir: cacheFolder(env), log };
    const outDir = join(runDir, runFolders.image);
    const gateProgram = buildGate(programs);
    await makeImageFiles({ outDir, architecture: 'amd64', gateProgram });
    copyTools(join(runDir, runFolders.tools), [buildConsumer(programs), gateProgram]);
    copyIfThere(compiled, join(runDir, compiledFile));
    using stop = watchSignals();
    using streams = openStreams(terminal);
    const machine = { ...files, repository, runDir };
    const { signal } = stop;
    return await runSession({ ...sessionLimits, machine, streams, timeoutMs, signal, log });
  } finally {
    collectResults(runDir, resultsDir);
    // Runs of other checkouts may read it meanwhile.
    copyIfThere(join(runDir, compiledFile), `${compiled}.${process.pid}`);
    if (existsSync(`${compiled}.${process.pid}`)) renameSync(`${compiled}.${process.pid}`, compiled);
    rmSync(runDir, { recursive: true, force: true });
  }
}

/** The programs of `programs/`: the guest has no compiler. */
function copyTools(toolsDir: string, programs: readonly string[]): void {
  mkdirSync(toolsDir);
  for (const program of programs) cpSync(program, join(toolsDir, basename(program)));
}

function parseTimeout(text: string | undefined): number {
  const seconds = Number(text ?? sessionLimits.timeoutMs / 1_000);
  if (Number.isInteger(seconds) && seconds > 0) return 1_000 * seconds;
  throw new NetdraError('timeout-invalid', `NETDRA_VM_TIMEOUT is ${JSON.stringify(text)}`, {
    hint: 'give a number of seconds',
  });
}

function watchSignals(): Disposable & { signal: AbortSignal } {
  const controller = new AbortController();
  const names = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
  const abort = (name: NodeJS.Signals) => controller.abort(name);
  for (const name of names) process.on(name, abort);
  return {
    signal: controller.signal,
    [Symbol.dispose]: () => {
      for (const name of names) process.off(name, abort);
    },
  };
}

/** Connects the guest's terminal to ours, which passes on each key unchanged. */
function openStreams(terminal: boolean): Disposable & Omit<GuestStreams, 'onLine'> {
  const { stdin, stdout, stderr } = process;
  if (!terminal) return { stdout, stderr, [Symbol.dispose]: () => undefined };
  if (stdin.isTTY) stdin.setRawMode(true);
  return {
    stdout,
    stderr,
    terminal: { input: stdin, output: stdout },
    [Symbol.dispose]: () => {
      if (stdin.isTTY) stdin.setRawMode(false);
      stdin.destroy();
    },
  };
}

/** The command's files in $NETDRA_RESULTS, and the kernel's log. */
function collectResults(runDir: string, resultsDir: string): void {
  mkdirSync(resultsDir, { recursive: true });
  cpSync(join(runDir, runFolders.results), resultsDir, { recursive: true });
  copyIfThere(join(runDir, 'kernel.log'), join(resultsDir, 'kernel.log'));
}

function copyIfThere(from: string, to: string): void {
  if (existsSync(from)) copyFileSync(from, to);
}

function removeStaleRunDirs(): void {
  for (const name of readdirSync(tmpdir())) {
    const [, pid] = /^netdra-vm-(\d+)-/.exec(name) ?? [];
    if (pid !== undefined && !isAlive(Number(pid))) rmSync(join(tmpdir(), name), { recursive: true, force: true });
  }
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return errnoCode(error) === 'EPERM';
  }
}

try {
  process.exitCode = await main(process.argv.slice(2), process.env);
} catch (error) {
  if (!(error instanceof NetdraError)) throw error;
  log(explain(error));
  process.exitCode = machineExitCode;
}
