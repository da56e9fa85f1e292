/**
 * The suite on a real cluster of one node: `npm run e2e:cluster -- --help`. Exits with 0 if all tests passed, 2 for wrong
 * usage.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Command, CommanderError, Option } from 'commander';
import { cacheFolder } from '../../scripts/packages/cache-folder.ts';
import { repository, runCommand } from '../../scripts/run-command.ts';
import { readVitestSummary } from '../../scripts/tests/results.ts';
import { explain, NetdraError } from '../../src/lib/errors.ts';
import { ensureGoPrograms } from '../go/build.ts';
import { findResult, type PairResult, replaceResults, withoutResult } from './compatibility.ts';
import { print, runOnCluster } from './launch.ts';
import {
  describePair,
  describeRuntime,
  fetchClusterPrograms,
  type KubernetesVersion,
  kubernetesVersions,
  olderVariable,
  oldestPair,
  type ProgramChoice,
  type RuntimeName,
  runtimeNames,
  toEnv,
} from './programs.ts';

interface Flags {
  kubernetes?: KubernetesVersion;
  runtime?: RuntimeName;
  kubernetesBin?: string;
  crio?: string;
  cniBin?: string;
  alpha?: true;
  all?: true;
  resume?: true;
  startTimes?: true;
  scale?: true;
  upgrade?: true;
}

const folder = (dir: string) => resolve(dir);

function clusterCommand(): Command {
  return new Command('npm run e2e:cluster --')
    .description('test netdra on a real Kubernetes cluster of one node, in namespaces of its own')
    .addOption(
      new Option('--kubernetes <version>', `built here (default: ${kubernetesVersions[0]})`).choices(
        kubernetesVersions,
      ),
    )
    .addOption(new Option('--runtime <name>', `container runtime (default: ${runtimeNames[0]})`).choices(runtimeNames))
    .option('--kubernetes-bin <dir>', 'programs of Kubernetes to take in place of those built here', folder)
    .option('--crio <dir>', 'folder with crio, conmon, pinns, and crun or runc, for --runtime crio', folder)
    .option('--cni-bin <dir>', 'folder with CNI plugins of other projects: whereabouts', folder)
    .addOption(
      new Option('--alpha', 'with feature gates that are off by default, Kubernetes 1.36 or later').conflicts('all'),
    )
    .option(
      '--all',
      'every version with every runtime, or those that --kubernetes and --runtime name; writes docs/compatibility.md',
    )
    .option('--resume', 'with --all: leaves out what docs/compatibility.md has results of')
    .option('--start-times', 'how long pods take to run, in place of the tests; its options: start-times.ts')
    .option('--scale', 'what many nodes cost the control plane, in place of the tests; its options: scale.ts')
    .option('--upgrade', `a node with pods goes from ${describePair(oldestPair)} to the chosen pair, and back`)
    .argument('[vitest...]', 'all else goes to vitest: -t "Cleanup"; or to start-times.ts or scale.ts')
    .allowUnknownOption()
    .showHelpAfterError('(npm run e2e:cluster -- --help lists the options)')
    .exitOverride();
}

async function runSuite(choice: ProgramChoice, vitestArguments: readonly string[]) {
  return await runOnCluster(choice, ['vitest', 'run', '--config', 'e2e/cluster/vitest.config.ts', ...vitestArguments]);
}

async function runUpgrade(choice: ProgramChoice, vitestArguments: readonly string[]) {
  const older = await fetchClusterPrograms(cacheFolder(process.env), oldestPair, print);
  Object.assign(process.env, toEnv(older, olderVariable));
  return await runSuite(choice, ['upgrade.test.ts', ...vitestArguments]);
}

async function runScale(choice: ProgramChoice, args: readonly string[]): Promise<boolean> {
  const cacheDir = cacheFolder(process.env);
  await ensureGoPrograms(cacheDir, 'slice-publisher', print);
  const env = toEnv(await fetchClusterPrograms(cacheDir, choice, print));
  const command = ['bash', 'scripts/in-node.sh', 'node', 'e2e/cluster/scale.ts', ...args];
  return (await runCommand(command, env, true)).succeeded;
}

/** The source of docs/compatibility.md. */
const resultsPath = fileURLToPath(new URL('compatibility.json', import.meta.url));
const pagePath = join(repository, 'docs/compatibility.md');

/**
 * Runs one pair after another, whatever fails. Writes results after each, so that an interrupted run can be resumed;
 * those of other pairs and other cases are kept.
 */
async function runAll(flags: Flags, vitestArguments: readonly string[]): Promise<boolean> {
  const choices = chooseAll(flags);
  const pairOf = (choice: ProgramChoice) => ({ ...choice, runtimeLabel: describeRuntime(choice), vitestArguments });
  let results = readResults();
  if (!flags.resume) results = choices.reduce((left, choice) => withoutResult(left, pairOf(choice)), results);
  for (const choice of choices) {
    const pair = pairOf(choice);
    const known = findResult(results, pair);
    if (known?.succeeded) {
      print(`${describePair(choice)}: ${known.passed} passed on ${known.date}, not run again`);
      continue;
    }
    print(`${describePair(choice)} ...`);
    const { output, succeeded } = await runSuite(choice, vitestArguments);
    const { kubernetes, runtime, runtimeLabel } = pair;
    const { passed, failed, skipped } = readVitestSummary(output);
    const date = new Date().toISOString().slice(0, 10);
    const result = {
      kubernetes,
      runtime,
      runtimeLabel,
      vitestArguments,
      date,
      succeeded,
      passed,
      failed,
      skipped,
    };
    results = [...withoutResult(results, pair), result];
    writeFileSync(resultsPath, `${JSON.stringify(results, null, 2)}\n`);
    writeFileSync(pagePath, replaceResults(readFileSync(pagePath, 'utf8'), results));
  }
  print(`the results are in ${pagePath}`);
  return choices.every((choice) => findResult(results, pairOf(choice))?.succeeded);
}

/** CRI-O is left out if its programs are not given, unless it is requested. */
function chooseAll(flags: Flags): ProgramChoice[] {
  const versions = kubernetesVersions.filter((each) => each === (flags.kubernetes ?? each));
  const runtimes = runtimeNames.filter((each) => each === (flags.runtime ?? each));
  const isLeftOut = (runtime: RuntimeName) => runtime === 'crio' && flags.runtime === undefined && !flags.crio;
  if (runtimes.some(isLeftOut)) print('CRI-O is not run: no --crio');
  const chosen = runtimes.filter((runtime) => !isLeftOut(runtime));
  return versions.flatMap((kubernetes) => chosen.map((runtime) => choose(flags, kubernetes, runtime)));
}

function choose(flags: Flags, kubernetes: KubernetesVersion, runtime: RuntimeName): ProgramChoice {
  const { kubernetesBin, crio, alpha } = flags;
  return {
    kubernetes,
    runtime,
    ...(alpha === undefined ? {} : { alpha }),
    ...(kubernetesBin === undefined ? {} : { kubernetesDir: kubernetesBin }),
    ...(crio === undefined ? {} : { crioDir: crio }),
  };
}

function readResults(): PairResult[] {
  return JSON.parse(readFileSync(resultsPath, 'utf8')) as PairResult[];
}

async function main(args: readonly string[]): Promise<boolean> {
  const command = clusterCommand();
  command.parse(args, { from: 'user' });
  const flags = command.opts<Flags>();
  // As in the suites of e2e/node and e2e/vm.
  if (flags.cniBin !== undefined) process.env.NETDRA_CNI_BIN_DIR = flags.cniBin;
  if (flags.all) return await runAll(flags, command.args);
  const choice = choose(flags, flags.kubernetes ?? kubernetesVersions[0], flags.runtime ?? runtimeNames[0]);
  if (flags.scale) return await runScale(choice, command.args);
  if (flags.upgrade) return (await runUpgrade(choice, command.args)).succeeded;
  const run = flags.startTimes
    ? runOnCluster(choice, ['node', 'e2e/cluster/start-times.ts', ...command.args])
    : runSuite(choice, command.args);
  return (await run).succeeded;
}

try {
  process.exitCode = (await main(process.argv.slice(2))) ? 0 : 1;
} catch (error) {
  if (error instanceof CommanderError) {
    // Commander has already printed the reason.
    process.exitCode = error.exitCode === 0 ? 0 : 2;
  } else if (error instanceof NetdraError) {
    print(explain(error));
    process.exitCode = 1;
  } else throw error;
}
