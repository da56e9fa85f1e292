/**
 * Makes the driver's seccomp profile from its actual system calls:
 *
 *   npm run seccomp -- npm run e2e:cluster
 *
 * Runs the command, which may start the driver any number of times, in any namespaces, and traces every process of the
 * driver and its children with strace. The calls are added to deploy/seccomp/traced.json, from which
 * deploy/seccomp/netdra.json is made; `--anew` discards the previous calls first. Without a command only the profile is
 * made. Needs root and strace.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { profilePath, readTraced, renderProfile, tracedPath } from '../deploy/seccomp/profile.ts';
import { parseStraceSummary } from '../deploy/seccomp/strace.ts';
import { listProcesses } from '../e2e/node/host-state.ts';
import { repository } from './run-command.ts';

/** A driver needs longer than this before it serves anything; its start is traced separately. */
const pollMs = 50;

const isDriver = (args: readonly string[]) =>
  args.includes('run') && args.some((arg) => arg.startsWith('--driver-name='));

/** Processes started by a container runtime are descendants of the first process in the node's pid namespace. */
function isBelow(pid: number, root: number): boolean {
  for (let each = pid; each > 1; each = parentOf(each)) if (each === root) return true;
  return false;
}

/** @returns 0 for a process that has ended */
function parentOf(pid: number): number {
  try {
    return Number(/^PPid:\s+(\d+)$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0);
  } catch {
    return 0;
  }
}

class Tracer {
  readonly #dir = mkdtempSync(join(tmpdir(), 'netdra-seccomp-'));
  readonly #traced = new Set<number>();
  readonly #straces: Promise<unknown>[] = [];

  /** Attaches to new processes of the driver among the descendants of a process. */
  attach(root: number): void {
    for (const { pid, args } of listProcesses()) {
      if (this.#traced.has(pid) || !isDriver(args) || !isBelow(pid, root)) continue;
      this.#traced.add(pid);
      this.#trace(['-p', String(pid)]);
    }
  }

  get count(): number {
    return this.#traced.size;
  }

  /** Traces a command from its first call to its last. */
  async run(command: readonly string[]): Promise<void> {
    await once(this.#trace(command), 'exit');
  }

  #trace(what: readonly string[]): ChildProcess {
    const output = join(this.#dir, String(this.#straces.length));
    const strace = spawn('strace', ['-f', '-c', '-U', 'name,calls', '-o', output, ...what], {
      cwd: repository,
      stdio: 'ignore',
    });
    this.#straces.push(once(strace, 'exit'));
    return strace;
  }

  /** Waits for the processes to end. @returns names of their calls */
  async finish(): Promise<string[]> {
    await Promise.all(this.#straces);
    const summaries = readdirSync(this.#dir).map((name) => readFileSync(join(this.#dir, name), 'utf8'));
    rmSync(this.#dir, { recursive: true });
    return summaries.flatMap(parseStraceSummary);
  }
}

const [anew, ...rest] = process.argv.slice(2);
const isAnew = anew === '--anew';
const command = isAnew ? rest : process.argv.slice(2);
const known = isAnew ? [] : readTraced();
const names = new Set(known);
let code = 0;
if (command.length > 0) {
  const tracer = new Tracer();
  const [program = '', ...args] = command;
  const env = { ...process.env, NETDRA_SECCOMP: 'RuntimeDefault' };
  const child = spawn(program, args, { cwd: repository, env, stdio: 'inherit' });
  const timer = setInterval(() => tracer.attach(child.pid ?? 0), pollMs);
  await tracer.run([process.execPath, 'src/main.ts', 'doctor']);
  await tracer.run([process.execPath, 'scripts/seccomp-exercise.ts']);
  [code] = (child.exitCode === null ? await once(child, 'exit') : [child.exitCode]) as [number];
  clearInterval(timer);
  console.error(`netdra: ${tracer.count} processes of the driver were traced`);
  for (const name of await tracer.finish()) names.add(name);
}
const traced = [...names].sort();
for (const name of traced.filter((each) => !known.includes(each))) console.error(`netdra: new: ${name}`);
writeFileSync(tracedPath, `${JSON.stringify(traced, null, 2)}\n`);
writeFileSync(profilePath, renderProfile(traced));
process.exitCode = code;
