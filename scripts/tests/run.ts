import { createWriteStream, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { stripVTControlCharacters } from 'node:util';
import { explain } from '../../src/lib/errors.ts';
import { repository, runCommand } from '../run-command.ts';
import { type FailedCase, type Part, problemOf } from './part.ts';
import {
  describeCase,
  formatDetails,
  formatTable,
  formatTotal,
  isVitestOutput,
  type PartResult,
  readVitestSummary,
  type Summary,
} from './results.ts';

const resultsFolder = join(repository, 'test-results');
const progressMs = 20_000;

export const print = (line: string) => console.log(line);

/** Parts that run at the same time, each lane one after another. */
export type Stage = readonly (readonly Part[])[];

/** Prints which parts will run, their duration, and the skipped parts with the reasons. */
export function announce(command: string, stages: readonly Stage[]): void {
  const parts = stages.flat(2);
  const problems = new Map(parts.map((part) => [part, problemOf(part)]));
  const runs = parts.filter((part) => problems.get(part) === undefined);
  const minutes = Math.ceil(estimateSeconds(stages, runs) / 60);
  print(
    `${command}: about ${minutes} min on two processors once its programs are in the cache: ${runs.map(({ name }) => name).join(', ')}`,
  );
  for (const part of parts) {
    const problem = problems.get(part);
    if (problem !== undefined) print(`skipped: ${part.name}: ${problem}`);
  }
}

/** Returns the duration: a stage takes as long as its longest lane. */
function estimateSeconds(stages: readonly Stage[], runs: readonly Part[]): number {
  const ofLane = (lane: readonly Part[]) =>
    lane.filter((part) => runs.includes(part)).reduce((sum, { seconds }) => sum + seconds, 0);
  return stages.reduce((sum, lanes) => sum + Math.max(0, ...lanes.map(ofLane)), 0);
}

/** Lists the parts, one per line: name, duration, versions, and why a part cannot run here. */
export function listParts(stages: readonly Stage[]): string {
  const lines = stages.flat(2).map((part) => {
    const problem = problemOf(part);
    return `${part.name.padEnd(32)} ${`${part.seconds} s`.padStart(6)}  ${part.versions}${problem === undefined ? '' : `  (skipped: ${problem})`}`;
  });
  return lines.join('\n');
}

/**
 * Selects the named parts, in their stages; all of them if none is named.
 * @throws Error for a name that no part has
 */
export function selectParts(stages: readonly Stage[], names: readonly string[]): readonly Stage[] {
  if (names.length === 0) return stages;
  const known = stages.flat(2).map(({ name }) => name);
  const unknown = names.filter((name) => !known.includes(name));
  if (unknown.length > 0) throw new Error(`no part ${unknown.join(', ')}; --list prints them`);
  return stages
    .map((lanes) =>
      lanes.map((lane) => lane.filter(({ name }) => names.includes(name))).filter((lane) => lane.length > 0),
    )
    .filter((lanes) => lanes.length > 0);
}

/**
 * Runs the stages one after another, then repeats failed cases alone, for parts that allow this. Prints progress, the
 * table, and the number of cases.
 * @param mustRun whether a part that cannot run here fails the run
 * @param folder for the logs of all parts, and the list of second attempts
 * @returns whether everything passed
 */
export async function runStages(stages: readonly Stage[], mustRun: boolean, folder = resultsFolder): Promise<boolean> {
  mkdirSync(folder, { recursive: true });
  const parts = stages.flat(2);
  await prepareParts(parts);
  const results = new Map<Part, PartResult>();
  for (const lanes of stages) {
    await Promise.all(
      lanes.map(async (lane) => {
        for (const part of lane) results.set(part, await runPart(part, folder));
      }),
    );
  }
  for (const part of parts) results.set(part, await runAgain(part, results.get(part)!, folder));
  return report(
    parts.map((part) => results.get(part)!),
    mustRun,
    folder,
  );
}

/** Why the programs of parts could not be built or fetched. */
const unprepared = new WeakMap<Part, string>();

/** Prepares the parts one after another: builds slow each other down several times if they run in parallel. */
async function prepareParts(parts: readonly Part[]): Promise<void> {
  for (const part of parts) {
    if (part.prepare === undefined || problemOf(part) !== undefined) continue;
    try {
      await part.prepare();
    } catch (error) {
      unprepared.set(part, explain(error));
    }
  }
}

const nothing = {
  passed: 0,
  failed: 0,
  skipped: 0,
  seconds: 0,
  failures: [],
  hasOtherErrors: false,
  skippedCases: [],
  secondAttempts: [],
};

async function runPart(part: Part, folder: string): Promise<PartResult> {
  const { name, versions } = part;
  const problem = problemOf(part);
  if (problem !== undefined) return { ...nothing, name, versions, outcome: 'not run', reason: problem };
  const reason = unprepared.get(part);
  if (reason !== undefined) {
    print(`${name}: FAILED, its programs cannot be built or fetched: ${reason}`);
    const failures = [{ cases: [{ file: name, titles: ['preparation'] }], reason }];
    return { ...nothing, name, versions, outcome: 'failed', failed: 1, failures };
  }
  print(`${name} ...`);
  const { summary, succeeded, seconds } = await runLogged(part, part.command, logFile(folder, name));
  print(`${name}: ${succeeded ? 'passed' : 'FAILED'}, ${describeCounts(summary)}, ${Math.round(seconds)} s`);
  const outcome = succeeded ? 'passed' : 'failed';
  return { ...nothing, ...summary, name, versions, seconds, outcome };
}

/** Runs a command of a part, and writes its output to a log. Prints the end of the output if the command fails. */
async function runLogged(part: Part, command: readonly string[], log: string) {
  const startedAt = performance.now();
  using file = openLog(log);
  let cases = 0;
  const progress = setInterval(() => {
    const seconds = Math.round((performance.now() - startedAt) / 1_000);
    print(`${part.name}: ${cases} cases passed, ${seconds} s of about ${part.seconds}`);
  }, progressMs);
  const { output, succeeded: exitedWell } = await runCommand(command, part.env?.() ?? {}, (chunk) => {
    cases += stripVTControlCharacters(chunk.toString()).match(/✓ (?!.*\.test\.ts \()/g)?.length ?? 0;
    file.write(chunk);
  });
  clearInterval(progress);
  const summary = summarize(part.name, output, exitedWell);
  const succeeded = exitedWell && summary.passed > 0;
  if (!succeeded)
    print(`\n${output.split('\n').slice(-tailLines).join('\n')}\n${part.name}: the whole output is in ${log}`);
  return { summary, succeeded, seconds: (performance.now() - startedAt) / 1_000 };
}

const tailLines = 120;

function logFile(folder: string, name: string): string {
  return join(folder, `${name.replaceAll(/[^a-z0-9.]+/gi, '-')}.log`);
}

function openLog(path: string): Disposable & { write(chunk: Buffer): void } {
  const stream = createWriteStream(path);
  return { write: (chunk) => stream.write(chunk), [Symbol.dispose]: () => stream.end() };
}

/**
 * Counts a command other than vitest as one case, and a failed command without failed cases as one failed case. vitest without
 * a passed case has failed, since it succeeds if a filter selects nothing.
 */
function summarize(name: string, output: string, exitedWell: boolean): Summary {
  const summary = readVitestSummary(output);
  if (!exitedWell) return summary.failed > 0 ? summary : { ...summary, failed: 1 };
  if (!isVitestOutput(output)) return { ...summary, passed: 1 };
  if (summary.passed > 0) return summary;
  return { ...summary, failed: 1, failures: [{ cases: [{ file: name, titles: [] }], reason: 'no case passed' }] };
}

function describeCounts({ passed, failed, skipped }: Summary): string {
  return [
    `${passed} passed`,
    ...(failed > 0 ? [`${failed} failed`] : []),
    ...(skipped > 0 ? [`${skipped} skipped`] : []),
  ].join(', ');
}

/**
 * Repeats a part once: its failed cases if nothing else failed, otherwise all of it. A second failure is final.
 */
async function runAgain(part: Part, result: PartResult, folder: string): Promise<PartResult> {
  if (result.outcome !== 'failed' || part.again === undefined || unprepared.has(part)) return result;
  const cases = result.failures.flatMap((failure) => failure.cases);
  const onlyCases =
    !result.hasOtherErrors && cases.length === result.failed && cases.every(({ titles }) => titles.length > 0);
  print(`${part.name}: second attempt, alone: ${onlyCases ? cases.map(describeCase).join('; ') : 'all of it'}`);
  const command = onlyCases ? part.again(cases) : part.command;
  const { summary, succeeded, seconds } = await runLogged(part, command, logFile(folder, `${part.name} again`));
  const total = result.seconds + seconds;
  // vitest also succeeds if a name selects no case.
  const isMended = succeeded && (!onlyCases || summary.passed >= cases.length);
  if (!isMended) return { ...result, seconds: total, failures: [...result.failures, ...summary.failures] };
  const secondAttempts: FailedCase[] = onlyCases ? cases : [{ file: part.name, titles: [] }, ...cases];
  const passed = onlyCases ? result.passed + result.failed : summary.passed;
  return { ...result, outcome: 'passed', passed, failed: 0, failures: [], seconds: total, secondAttempts };
}

function report(results: readonly PartResult[], mustRun: boolean, folder: string): boolean {
  const secondAttemptsFile = join(folder, 'second-attempts.txt');
  const attempts = results.flatMap(({ name, secondAttempts }) =>
    secondAttempts.map((each) => `${name}: ${describeCase(each)}\n`),
  );
  writeFileSync(secondAttemptsFile, attempts.join(''));
  const details = formatDetails(results);
  print(`\n${formatTable(results)}\n`);
  if (details !== '') print(`${details}\n`);
  if (attempts.length > 0) print(`cases that passed at the second attempt are listed in ${secondAttemptsFile}\n`);
  print(formatTotal(results));
  return results.every(({ outcome }) => outcome === 'passed' || (outcome === 'not run' && !mustRun));
}
