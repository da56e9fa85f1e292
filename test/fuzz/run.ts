import { parseArgs } from 'node:util';
import { type CampaignOptions, listTargets, runCampaign } from './campaign.ts';
import { findingsDir, readReplay, saveFinding } from './finding.ts';
import type { TargetReport } from './fuzz-target.ts';

const usage = `usage: npm run fuzz -- [--seconds 600 | --minutes 10] [--seed N] [--target NAME ...] [--replay FILE|base64:TEXT]

Feeds changed inputs to everything that reads what others write, and watches for errors that no doc comment announces,
answers that cannot be right, inputs that take more than a second of CPU time, and memory that is not given back.

--seconds   for all targets together; each gets the same share
--minutes   the same in minutes
--seed      the same seed makes the same inputs, as long as the code is the same; default: another one each time
--target    only this one, or these
--replay    run one input of one target, as printed with a finding

targets: ${listTargets().join(', ')}
`;

const columns = [
  ['target', 22],
  ['runs', 11],
  ['runs/s', 9],
  ['inputs kept', 13],
  ['code run', 10],
  ['result', 0],
] as const;

/** @throws Error with what is wrong */
function parseArguments(args: string[]): CampaignOptions | undefined {
  const { values } = parseArgs({
    args,
    options: {
      seconds: { type: 'string' },
      minutes: { type: 'string' },
      seed: { type: 'string', default: String(Math.floor(Math.random() * 2 ** 32)) },
      target: { type: 'string', multiple: true },
      replay: { type: 'string' },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  if (values.help) return undefined;
  if (values.seconds !== undefined && values.minutes !== undefined) throw new Error('give --seconds or --minutes');
  const durationMs =
    values.minutes === undefined
      ? 1_000 * parseNumber('seconds', values.seconds ?? '600')
      : 60_000 * parseNumber('minutes', values.minutes);
  const seed = parseNumber('seed', values.seed);
  if (values.replay !== undefined && values.target?.length !== 1) throw new Error('--replay needs one --target');
  return {
    durationMs,
    seed,
    ...(values.target === undefined ? {} : { targets: values.target }),
    ...(values.replay === undefined ? {} : { replay: readReplay(values.replay) }),
  };
}

function parseNumber(flag: string, text: string): number {
  if (/^\d{1,15}$/.test(text)) return Number(text);
  throw new Error(`--${flag}: a number is needed, not ${JSON.stringify(text)}`);
}

function formatRow(cells: readonly string[]): string {
  return cells.map((cell, index) => cell.padEnd(columns[index]?.[1] ?? 0)).join(' ');
}

function formatReport(report: TargetReport): string {
  const { target, executions, durationMs, corpusSize, coveragePercent, findings } = report;
  return formatRow([
    target,
    executions.toLocaleString('en'),
    Math.round((1000 * executions) / durationMs).toLocaleString('en'),
    corpusSize.toLocaleString('en'),
    `${coveragePercent.toFixed(0)} %`,
    findings.length === 0 ? 'ok' : findings.map(({ kind }) => kind).join(', '),
  ]);
}

async function main(): Promise<number> {
  const print = (line: string) => process.stdout.write(`${line}\n`);
  const options = parseArguments(process.argv.slice(2));
  if (options === undefined) {
    print(usage);
    return 0;
  }
  print(`seed ${options.seed}, ${options.durationMs / 1000} s`);
  print(formatRow(columns.map(([title]) => title)));
  const reports = await runCampaign({ ...options, onReport: (report) => print(formatReport(report)) });
  const findings = reports.flatMap((report) => report.findings);
  for (const finding of findings) {
    print(`\n${finding.target}, ${finding.kind}: ${finding.message}`);
    print(`again: ${saveFinding(finding, findingsDir)}`);
  }
  const executions = reports.reduce((sum, report) => sum + report.executions, 0);
  print(`\n${executions.toLocaleString('en')} runs, ${findings.length} findings`);
  return findings.length === 0 ? 0 : 1;
}

try {
  process.exitCode = await main();
} catch (error) {
  process.stderr.write(`fuzz: ${(error as Error).message}\n\n${usage}`);
  process.exitCode = 2;
}
