import { fork } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import { isMode, type Mode, modes } from './modes.ts';
import { plantedBugs } from './planted/bugs.ts';
import { openSimulation } from './planted/open.ts';
import type { Finding } from './simulation.ts';
import type { WorkerMessage, WorkerTask } from './worker.ts';

const usage = `usage: npm run simulate -- [--schedules 20000] [--from 1 | random] [--workers N] [--mode NAME]
       npm run simulate -- --seed N [--planted NAME] [--mode NAME] [--whole]
       npm run simulate -- --planted all|NAME,NAME [--schedules 16000] [--keep]

Runs the driver's code on a simulated node, with faults and delays chosen by a seed, and checks after every step that no
rule is broken: see README.md.

--schedules  how many, each with a seed of its own
--from       the first seed; random: another one each time
--seed       replays one schedule and prints what happens in it, as short as it can be made
--whole      prints all of it instead
--planted    with a bug put into the code: which schedule finds it, of those with the circumstances that it needs
--mode       ${Object.entries(modes)
  .map(([name, what]) => `${name}: ${what}`)
  .join('\n             ')}
--keep       writes the seeds that found planted bugs to test/simulation/planted/seeds.json

planted bugs: ${plantedBugs.map(({ name }) => name).join(', ')}
`;

const seedsFile = new URL('planted/seeds.json', import.meta.url);
const workerFile = new URL('worker.ts', import.meta.url);
/** Schedules throw thousands of errors whose stacks are never read, and produce much short-lived garbage. */
const workerFlags = ['--stack-trace-limit=0', '--min-semi-space-size=64', '--max-semi-space-size=64'];
const shrinkMs = 60_000;
const printEveryMs = 5_000;
const hungMs = 180_000;

const print = (line: string) => process.stdout.write(`${line}\n`);

interface Total {
  schedules: number;
  steps: number;
  findings: Finding[];
}

/**
 * A schedule that ends its worker, or does not end, is a finding as well; the rest of the worker's task is not run then.
 * @throws Error if the worker cannot be started
 */
function runWorker(task: WorkerTask, onMessage: (message: WorkerMessage) => void): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const child = fork(workerFile, { execArgv: workerFlags });
  let last: WorkerMessage | undefined;
  let hung: NodeJS.Timeout | undefined;
  child.on('message', (message: WorkerMessage) => {
    last = message;
    clearTimeout(hung);
    // Shortening a tape takes a minute.
    hung = setTimeout(() => child.kill('SIGKILL'), hungMs);
    onMessage(message);
  });
  child.on('error', reject);
  child.on('exit', (code, signal) => {
    clearTimeout(hung);
    if (last === undefined) return reject(new Error(`a worker ended at once with exit code ${code}`));
    if (last.type === 'begin') {
      const { seed, schedules } = last;
      const message = `the worker ended in it (${signal ?? `exit code ${code}`})`;
      onMessage({ type: 'finding', finding: { seed, rule: 'crash', message, shortest: undefined }, schedules });
    }
    resolve();
  });
  child.send(task);
  return promise;
}

async function runAll(from: number, schedules: number, workers: number, mode?: Mode): Promise<Total> {
  const share = Math.ceil(schedules / workers);
  const total: Total = { schedules: 0, steps: 0, findings: [] };
  const done = new Map<number, { schedules: number; steps: number }>();
  const startedAtMs = performance.now();
  let printedAtMs = startedAtMs;
  const sum = (key: 'schedules' | 'steps') => [...done.values()].reduce((all, each) => all + each[key], 0);
  const parts = Array.from({ length: workers }, (_, index) => index).filter((index) => index * share < schedules);
  await Promise.all(
    parts.map((index) => {
      const first = from + index * share;
      const count = Math.min(share, schedules - index * share);
      return runWorker({ from: first, count, mode, stopsAtFirst: false, shrinkMs }, (message) => {
        if (message.type === 'finding') {
          total.findings.push(message.finding);
          report(message.finding, mode);
          return;
        }
        done.set(index, message);
        if (performance.now() - printedAtMs < printEveryMs) return;
        printedAtMs = performance.now();
        const perSecond = (1_000 * sum('schedules')) / (printedAtMs - startedAtMs);
        print(`${sum('schedules').toLocaleString('en')} schedules, ${perSecond.toFixed(0)} a second`);
      });
    }),
  );
  total.schedules = sum('schedules');
  total.steps = sum('steps');
  return total;
}

function report({ seed, rule, message, shortest }: Finding, mode?: Mode): void {
  print(`\nseed ${seed} breaks a rule: ${message}`);
  if (shortest !== undefined)
    print(`the shortest schedule that breaks ${rule} has ${shortest.length} choices: ${JSON.stringify(shortest)}`);
  print(`again: npm run simulate -- --seed ${seed}${mode === undefined ? '' : ` --mode ${mode}`}\n`);
}

/** @returns the exit code */
async function replay(
  seed: number,
  { planted, mode, isWhole }: { planted: string | undefined; mode: Mode | undefined; isWhole: boolean },
): Promise<number> {
  using simulation = openSimulation(planted, mode);
  const first = await simulation.run(seed, true);
  let outcome: Pick<typeof first, 'violation' | 'trace'> = first;
  if (first.violation !== undefined && !isWhole) {
    const values = await simulation.shorten(first.values, first.violation.rule, shrinkMs);
    outcome = await simulation.replay(values, true);
  }
  for (const [atMs, who, what] of outcome.trace)
    print(`${(atMs / 1_000).toFixed(4).padStart(9)} s  ${who.padEnd(12)} ${what}`);
  print(outcome.violation === undefined ? 'no rule is broken' : `broken: ${outcome.violation.message}`);
  return outcome.violation === undefined ? 0 : 1;
}

/** The first failing seed from 1 on, of those whose schedules can show the bug. */
interface KeptSeed {
  seed: number;
  rule: string;
}

function keep(bug: string, seed: KeptSeed): void {
  const before = JSON.parse(readFileSync(seedsFile, 'utf8')) as Record<string, KeptSeed>;
  const all = { ...before, [bug]: seed };
  const ordered = plantedBugs.flatMap(({ name }) => (all[name] === undefined ? [] : [[name, all[name]]]));
  writeFileSync(seedsFile, `${JSON.stringify(Object.fromEntries(ordered), undefined, 2)}\n`);
}

/** @returns the exit code */
async function findPlanted(
  names: readonly string[],
  schedules: number,
  workers: number,
  keeps: boolean,
): Promise<number> {
  const found = new Map<string, KeptSeed>();
  const queue = [...names];
  const work = async () => {
    for (let name = queue.shift(); name !== undefined; name = queue.shift()) {
      const bug = name;
      const task = { planted: bug, from: 1, count: schedules, stopsAtFirst: true, shrinkMs: 0 };
      await runWorker(task, (message) => {
        if (message.type !== 'finding') return;
        const { seed, rule } = message.finding;
        found.set(bug, { seed, rule });
      });
      const kept = found.get(bug);
      if (keeps && kept !== undefined) keep(bug, kept);
      print(
        `${bug.padEnd(30)} ${kept === undefined ? `not found in ${schedules}` : `seed ${kept.seed}, ${kept.rule}`}`,
      );
    }
  };
  await Promise.all(Array.from({ length: workers }, work));
  print(`\n${found.size} of ${names.length} planted bugs found`);
  return found.size === names.length ? 0 : 1;
}

function parseNumber(flag: string, text: string): number {
  if (/^[1-9]\d{0,14}$/.test(text)) return Number(text);
  throw new Error(`--${flag}: a number above 0 is needed, not ${JSON.stringify(text)}`);
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      schedules: { type: 'string' },
      from: { type: 'string', default: '1' },
      workers: { type: 'string', default: String(availableParallelism()) },
      seed: { type: 'string' },
      whole: { type: 'boolean', default: false },
      planted: { type: 'string' },
      mode: { type: 'string' },
      keep: { type: 'boolean', default: false },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  if (values.help) {
    print(usage);
    return 0;
  }
  const workers = parseNumber('workers', values.workers);
  const { planted, mode, whole: isWhole } = values;
  if (mode !== undefined && !isMode(mode)) throw new Error(`--mode: there is no mode ${JSON.stringify(mode)}`);
  if (values.seed !== undefined) return await replay(parseNumber('seed', values.seed), { planted, mode, isWhole });
  if (values.planted !== undefined) {
    const names = values.planted === 'all' ? plantedBugs.map(({ name }) => name) : values.planted.split(',');
    return await findPlanted(names, parseNumber('schedules', values.schedules ?? '16000'), workers, values.keep);
  }
  const from = values.from === 'random' ? Math.floor(Math.random() * 2 ** 40) : parseNumber('from', values.from);
  const schedules = parseNumber('schedules', values.schedules ?? '20000');
  print(`${schedules.toLocaleString('en')} schedules from seed ${from}, ${workers} workers`);
  const startedAtMs = performance.now();
  const total = await runAll(from, schedules, workers, mode);
  const seconds = (performance.now() - startedAtMs) / 1_000;
  print(
    `${total.schedules.toLocaleString('en')} schedules, ${total.steps.toLocaleString('en')} steps, ${Math.round(seconds)} s: ${total.findings.length} violations`,
  );
  // A worker that ends early leaves the rest of its share.
  if (total.schedules < schedules)
    print(`${(schedules - total.schedules).toLocaleString('en')} schedules were not run`);
  return total.findings.length === 0 && total.schedules === schedules ? 0 : 1;
}

try {
  process.exitCode = await main();
} catch (error) {
  process.stderr.write(`simulate: ${(error as Error).message}\n\n${usage}`);
  process.exitCode = 2;
}
