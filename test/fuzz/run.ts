/** `npm run fuzz`: see the usage. Exits with 1 on a finding, 2 for wrong usage. */
import { parseArgs } from 'node:util';
import { cProgramsName, reportPrograms } from './c-programs.ts';
import { compareClassAndEffects, comparePolicyAndDriver } from './comparisons.ts';
import { fuzzTarget } from './fuzz-target.ts';
import { describeFinding, formatReports, type Report, type TargetReport } from './report.ts';
import { targetNames, targetUrl } from './target.ts';

/** Folder for the inputs of findings, relative to the root of the repository. */
const findingsDir = 'test-results/fuzz';

interface Part {
  name: string;
  /** Shares of the time. */
  shares: number;
  /** @param seconds a whole number */
  run(seconds: number, seed: number): Promise<Report>;
}

/** The comparison comes first: the start of its API server takes time, which the later parts then share. */
const parts: readonly Part[] = [
  { name: 'policy-and-driver', shares: 6, run: comparePolicyAndDriver },
  { name: 'class-and-effects', shares: 3, run: compareClassAndEffects },
  { name: cProgramsName, shares: 3, run: reportPrograms },
  ...targetNames().map((name) => ({
    name,
    shares: 1,
    run: (seconds: number, seed: number) => fuzzTarget(targetUrl(name), seconds, seed),
  })),
];

const usage = `usage: npm run fuzz -- [--minutes 10 | --seconds 600] [--seed N] [--target NAME ...] [--without NAME ...]

Runs edited and generated inputs through every parser of input from outside, the C programs with sanitizers, and
claim configurations through the admission policies of a real API server and the driver. Findings are errors that a
parser does not announce, wrong results, inputs that take more than ten seconds of CPU time or too much memory,
configurations that only one of policy and driver accepts, and those that do in the kernel what their class does not allow.

--minutes, --seconds   for all targets together
--seed                 the same seed gives the same inputs; default: another one each time
--target               only this one, or these
--without              all but this one, or these

targets: ${parts.map(({ name }) => name).join(', ')}
`;

interface Options {
  seconds: number;
  seed: number;
  chosen: readonly Part[];
}

/** @throws Error with the usage error */
function parseArguments(args: string[]): Options | undefined {
  const { values } = parseArgs({
    args,
    options: {
      seconds: { type: 'string' },
      minutes: { type: 'string' },
      seed: { type: 'string', default: String(Math.floor(Math.random() * 2 ** 31)) },
      target: { type: 'string', multiple: true },
      without: { type: 'string', multiple: true, default: [] },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  const { minutes, seconds, without, target = parts.map(({ name }) => name) } = values;
  const names = target.filter((name) => !without.includes(name));
  if (values.help) return undefined;
  if (seconds !== undefined && minutes !== undefined) throw new Error('give --seconds or --minutes');
  const unknown = [...target, ...without].filter((name) => !parts.some((part) => part.name === name));
  if (unknown.length > 0) throw new Error(`no target ${unknown.join(', ')}`);
  return {
    seconds: seconds === undefined ? 60 * parseNumber('minutes', minutes ?? '10') : parseNumber('seconds', seconds),
    seed: parseNumber('seed', values.seed),
    chosen: parts.filter(({ name }) => names.includes(name)),
  };
}

function parseNumber(flag: string, text: string): number {
  if (/^\d{1,10}$/.test(text)) return Number(text);
  throw new Error(`--${flag}: a number is needed, not ${JSON.stringify(text)}`);
}

async function runParts({ seconds, seed, chosen }: Options): Promise<TargetReport[]> {
  const endsAtMs = performance.now() + seconds * 1000;
  const reports: TargetReport[] = [];
  for (const [index, { name, shares, run }] of chosen.entries()) {
    const startedMs = performance.now();
    const sharesLeft = chosen.slice(index).reduce((sum, part) => sum + part.shares, 0);
    const own = Math.max(1, Math.round((Math.max(0, endsAtMs - startedMs) * shares) / sharesLeft / 1000));
    const report = await run(own, seed);
    reports.push({ target: name, ...report, seconds: (performance.now() - startedMs) / 1000 });
    if (report.leftOut !== undefined) print(`left out: ${name}: ${report.leftOut}`);
    else print(`${name}: ${report.inputs ?? '?'} inputs, ${report.findings.length} findings`);
    for (const finding of report.findings) print(`\n${describeFinding(name, finding, findingsDir)}\n`);
  }
  return reports;
}

const print = (line: string) => process.stdout.write(`${line}\n`);

async function main(args: string[]): Promise<number> {
  let options: Options | undefined;
  try {
    options = parseArguments(args);
  } catch (error) {
    process.stderr.write(`fuzz: ${(error as Error).message}\n\n${usage}`);
    return 2;
  }
  if (options === undefined) {
    print(usage);
    return 0;
  }
  print(`seed ${options.seed}, ${options.seconds} s`);
  const reports = await runParts(options);
  print(`\n${formatReports(reports)}`);
  return reports.some(({ findings }) => findings.length > 0) ? 1 : 0;
}

process.exitCode = await main(process.argv.slice(2));
