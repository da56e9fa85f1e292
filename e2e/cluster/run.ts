/** The suite on a real cluster of one node: `npm run e2e:cluster -- --help`. Exits with 0 if all tests passed, 2 for wrong usage. */
import { writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { Command, CommanderError, Option } from 'commander';
import { repository } from '../../scripts/run-command.ts';
import { readVitestSummary } from '../../scripts/test-table.ts';
import { formatCompatibility, type PairResult } from './compatibility.ts';
import { print, runOnCluster } from './launch.ts';
import {
  describePair,
  type KubernetesVersion,
  kubernetesVersions,
  type ProgramChoice,
  type RuntimeName,
  runtimeNames,
} from './programs.ts';

interface Flags {
  kubernetes: KubernetesVersion;
  runtime: RuntimeName;
  kubernetesBin?: string;
  all?: true;
}

function clusterCommand(): Command {
  return new Command('npm run e2e:cluster --')
    .description('test netdra on a real Kubernetes cluster of one node, in namespaces of its own')
    .addOption(
      new Option('--kubernetes <version>', 'built here').choices(kubernetesVersions).default(kubernetesVersions[0]),
    )
    .addOption(new Option('--runtime <name>', 'container runtime').choices(runtimeNames).default(runtimeNames[0]))
    .option('--kubernetes-bin <dir>', 'programs of Kubernetes to take in place of those built here', (dir) =>
      resolve(dir),
    )
    .option('--all', 'every version with every runtime; writes docs/compatibility.md')
    .argument('[vitest...]', 'all else goes to vitest: -t "Cleanup"')
    .allowUnknownOption()
    .showHelpAfterError('(npm run e2e:cluster -- --help lists the options)')
    .exitOverride();
}

async function runSuite(choice: ProgramChoice, vitestArguments: readonly string[]) {
  return await runOnCluster(choice, ['vitest', 'run', '--config', 'e2e/cluster/vitest.config.ts', ...vitestArguments]);
}

/** One after another; all of them, whatever fails. */
async function runAll(vitestArguments: readonly string[]): Promise<boolean> {
  const results: PairResult[] = [];
  for (const kubernetes of kubernetesVersions) {
    for (const runtime of runtimeNames) {
      print(`${describePair({ kubernetes, runtime })} ...`);
      const { output, succeeded } = await runSuite({ kubernetes, runtime }, vitestArguments);
      results.push({ kubernetes, runtime, succeeded, ...readVitestSummary(output) });
    }
  }
  const path = join(repository, 'docs/compatibility.md');
  writeFileSync(path, formatCompatibility(results, vitestArguments));
  print(`the results are in ${path}`);
  return results.every(({ succeeded }) => succeeded);
}

try {
  const command = clusterCommand();
  command.parse(process.argv.slice(2), { from: 'user' });
  const { kubernetes, runtime, kubernetesBin, all } = command.opts<Flags>();
  const bin = kubernetesBin === undefined ? {} : { kubernetesDir: kubernetesBin };
  const succeeded = all
    ? await runAll(command.args)
    : (await runSuite({ kubernetes, runtime, ...bin }, command.args)).succeeded;
  process.exitCode = succeeded ? 0 : 1;
} catch (error) {
  if (!(error instanceof CommanderError)) throw error;
  // It has said why.
  process.exitCode = error.exitCode === 0 ? 0 : 2;
}
