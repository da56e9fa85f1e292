import { runOnCluster } from '../../e2e/cluster/launch.ts';
import { fetchClusterPrograms, kubernetesVersions, runtimeNames } from '../../e2e/cluster/programs.ts';
import { cacheFolder } from '../../scripts/packages/cache-folder.ts';
import { PackageError } from '../../scripts/packages/debian-packages.ts';
import { type CommandResult, runCommand } from '../../scripts/run-command.ts';
import { fuzzEnv } from './amount.ts';
import type { Report } from './report.ts';

const choice = { kubernetes: kubernetesVersions[0], runtime: runtimeNames[0] };
const policyCommand = ['vitest', 'run', '--config', 'e2e/cluster/vitest.config.ts', 'api/policy-agrees'];
const onNode = ['bash', 'scripts/in-node.sh', 'vitest', 'run', '--project', 'integration'];
const effectsCommand = [...onNode, 'test/integration/class-effects.test.ts'];
const needsRoot = 'a node of its own needs root';
/** From the output of a failed test. */
const shownLines = 60;

/** Compares admission policies and driver on a real API server: `e2e/cluster/api/policy-agrees.test.ts`. */
export async function comparePolicyAndDriver(seconds: number, seed: number): Promise<Report> {
  const leftOut = await whyNot();
  if (leftOut !== undefined) return { inputs: undefined, findings: [], leftOut };
  return toReport(await runOnCluster(choice, policyCommand, { env: fuzzEnv(seconds, seed), show: false }), seed);
}

/**
 * Compares the limits of classes with what configurations do in the kernel of this machine:
 * `test/integration/class-effects.test.ts`.
 */
export async function compareClassAndEffects(seconds: number, seed: number): Promise<Report> {
  if (process.getuid?.() !== 0) return { inputs: undefined, findings: [], leftOut: needsRoot };
  return toReport(await runCommand(effectsCommand, fuzzEnv(seconds, seed)), seed);
}

function toReport({ output, succeeded }: CommandResult, seed: number): Report {
  const counts = [...output.matchAll(/(\d+) configurations taken and (\d+) refused by both/g)];
  const total = counts.reduce((sum, [, taken, refused]) => sum + Number(taken) + Number(refused), 0);
  const inputs = counts.length === 0 ? undefined : total;
  const findings = succeeded ? [] : [{ message: `seed ${seed}\n${output.split('\n').slice(-shownLines).join('\n')}` }];
  return { inputs, findings };
}

async function whyNot(): Promise<string | undefined> {
  if (process.getuid?.() !== 0) return needsRoot;
  try {
    await fetchClusterPrograms(cacheFolder(process.env), choice, (line) => process.stderr.write(`${line}\n`));
    return undefined;
  } catch (error) {
    if (error instanceof PackageError) return error.message;
    throw error;
  }
}
