/** The suite on a real cluster of one node: `npm run e2e:cluster -- --help`. Exits with 0 if all tests passed, 2 for wrong usage. */
import { spawnSync } from 'node:child_process';
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Command, CommanderError, Option } from 'commander';
import { explain, NetdraError } from '../../src/errors.ts';
import { cacheFolder } from '../node/tools.ts';
import {
  fetchClusterPrograms,
  type KubernetesVersion,
  kubernetesVersions,
  type RuntimeName,
  runtimeNames,
  toEnv,
} from './programs.ts';

const repository = fileURLToPath(new URL('../..', import.meta.url));
const print = (line: string) => console.error(`netdra: ${line}`);

interface Flags {
  kubernetes: KubernetesVersion;
  runtime: RuntimeName;
  kubernetesBin?: string;
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
    .argument('[vitest...]', 'all else goes to vitest: -t "Cleanup"')
    .allowUnknownOption()
    .showHelpAfterError('(npm run e2e:cluster -- --help lists the options)')
    .exitOverride();
}

async function main(argv: string[]): Promise<number> {
  const command = clusterCommand();
  command.parse(argv, { from: 'user' });
  const { kubernetes, runtime, kubernetesBin } = command.opts<Flags>();
  const bin = kubernetesBin === undefined ? {} : { kubernetesDir: kubernetesBin };
  const programs = await fetchClusterPrograms(cacheFolder(process.env), { kubernetes, runtime, ...bin }, print);
  const { status: fetched } = spawnSync('bash', ['scripts/fetch-tools.sh'], { cwd: repository, stdio: 'inherit' });
  if (fetched !== 0) return fetched ?? 1;
  const tests = ['vitest', 'run', '--config', 'e2e/cluster/vitest.config.ts', ...command.args];
  const { status } = spawnSync('bash', ['scripts/in-node.sh', ...tests], {
    cwd: repository,
    stdio: 'inherit',
    env: { ...process.env, ...toEnv(programs) },
  });
  return status ?? 1;
}

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  if (error instanceof CommanderError) {
    // It has said why.
    process.exitCode = error.exitCode === 0 ? 0 : 2;
  } else {
    if (!(error instanceof NetdraError)) throw error;
    print(explain(error));
    process.exitCode = 1;
  }
}
