import {
  describePair,
  fetchClusterPrograms,
  olderVariable,
  oldestPair,
  type ProgramChoice,
  testedPairs,
  toEnv,
} from '../../e2e/cluster/programs.ts';
import { hasGo } from '../../e2e/go/toolchain.ts';
import { buildEnginePrograms, describeEngine } from '../../e2e/kind/engine/machine.ts';
import { takeMachineParts } from '../../e2e/vm/parts.ts';
import { cacheFolder } from '../packages/cache-folder.ts';
import { repository, runCommand } from '../run-command.ts';
import { compiler, debian, debianUnless, type FailedCase, ordinaryUser, type Part, root, x86 } from './part.ts';
import { selectCases } from './results.ts';
import { print, type Stage } from './run.ts';
import { integration, nodeTools, onNode, restOfSimulation, units } from './short-parts.ts';

const note = (line: string) => print(`netdra: ${line}`);
const cacheDir = cacheFolder(process.env);

/** Runs a script that provides programs, once for all parts that need it. */
const scripts = new Map<string, Promise<void>>();
function runScript(...command: string[]): Promise<void> {
  const key = command.join(' ');
  const known = scripts.get(key) ?? provide(command);
  scripts.set(key, known);
  return known;
}

/** Runs a script, once more if it fails: a single download that fails must not fail all parts. */
export async function provide(command: readonly string[]): Promise<void> {
  const run = () => runCommand(command, {}, true);
  const first = await run();
  const { output, succeeded } = first.succeeded ? first : await run();
  if (!succeeded) throw new Error(`${command.join(' ')} failed: ${output.trim().split('\n').slice(-3).join('; ')}`);
}

const fetchTools = () => runScript('bash', 'scripts/fetch-tools.sh');

/** Returns the programs of clusters as environment variables for their tests. */
const clusterEnvs = new Map<ProgramChoice, Record<string, string>>();

async function prepareCluster(choice: ProgramChoice): Promise<void> {
  await fetchTools();
  clusterEnvs.set(choice, toEnv(await fetchClusterPrograms(cacheDir, choice, note)));
}

const clusterNeeds = [root, debian, compiler];

/** Makes a part whose failed cases can be repeated by their titles. */
function repeatable(part: Part): Part {
  return { ...part, again: (cases) => [...part.command, '-t', selectCases(cases)] };
}

const inCluster = (config: string, ...args: string[]) =>
  ['bash', 'scripts/in-node.sh', 'vitest', 'run', '--config', config].concat(args);

function clusterPart(name: string, choice: ProgramChoice, seconds: number, ...args: string[]): Part {
  return repeatable({
    name,
    versions: describePair(choice),
    command: inCluster('e2e/cluster/vitest.config.ts', ...args),
    env: () => clusterEnvs.get(choice) ?? {},
    seconds,
    needs: clusterNeeds,
    prepare: () => prepareCluster(choice),
  });
}

const [newestPair] = testedPairs;

const newestCluster = clusterPart('cluster 1', newestPair, 400, 'suite.test.ts', 'api/', '--tags-filter', '!oldest');
const oldestCluster = clusterPart('cluster 2', oldestPair, 250, 'suite.test.ts', 'api/', '--tags-filter', '!newest');
const release = clusterPart('release and pages', newestPair, 300, 'release.test.ts');

const upgradeCase = clusterPart('upgrade', newestPair, 60, 'upgrade.test.ts');
const upgrade: Part = {
  ...upgradeCase,
  versions: `${describePair(oldestPair)} to ${describePair(newestPair)}`,
  env: () => {
    const [older = ''] = Object.values(clusterEnvs.get(oldestPair) ?? {});
    return { ...clusterEnvs.get(newestPair), [olderVariable]: older };
  },
  prepare: async () => {
    await prepareCluster(newestPair);
    await prepareCluster(oldestPair);
  },
};

const machineParts = async () => {
  takeMachineParts({ repository, cacheDir: `${cacheDir}/vm`, log: note }).lock[Symbol.dispose]();
};

const machine = repeatable({
  name: 'virtual machine',
  versions: 'QEMU igb',
  command: ['bash', 'scripts/e2e-vm.sh'],
  seconds: 300,
  needs: [root, x86, debian, compiler],
  prepare: machineParts,
});

const machineWithKubelet = repeatable({
  ...newestCluster,
  name: 'virtual machine with a kubelet',
  versions: `${describePair(newestPair)}, QEMU igb`,
  command: inCluster('e2e/vm/cluster/vitest.config.ts'),
  seconds: 210,
  needs: [...clusterNeeds, x86],
  prepare: async () => {
    await machineParts();
    await prepareCluster(newestPair);
  },
});

const onKind = (pattern: string) => 'node e2e/kind/run.ts --engine own --workers 2 -- -t'.split(' ').concat(pattern);

/** Parts of titles. The clusters of one node run the other cases with the same versions. */
export const kindCases = ['several nodes', 'Metadata file mounted'];

const kind: Part = {
  name: 'kind',
  versions: `${describeEngine()}, three nodes`,
  command: onKind(kindCases.join('|')),
  again: (cases: readonly FailedCase[]) => onKind(selectCases(cases)),
  seconds: 560,
  needs: clusterNeeds,
  prepare: async () => {
    await fetchTools();
    await buildEnginePrograms(cacheDir, note);
  },
};

const site: Part = {
  name: 'site',
  versions: 'VitePress, Chromium',
  command: ['bash', 'docs/site/with-packages.sh', 'bash', 'docs/site/test.sh'],
  seconds: 130,
  needs: [debian],
  prepare: () => runScript('bash', 'docs/site/with-packages.sh', 'node', 'docs/site/test/chromium.ts'),
};

const tools: Part = {
  name: 'tools',
  versions: 'Helm, Prometheus, pnpm, actionlint',
  command: onNode('--project', 'tools'),
  seconds: 40,
  needs: [root, debian, compiler],
  prepare: fetchTools,
};

const faults = repeatable({
  name: 'containerd, faults',
  versions: 'containerd 2.1 and 1.7',
  command: onNode('--project', 'e2e-node', '--exclude', '**/main-job.test.ts'),
  seconds: 400,
  needs: [root, nodeTools, compiler],
});

const neighbours: Part = {
  name: 'neighbours',
  versions: 'NRI runtime side, metadata codec and pre-release of Kubernetes in Go',
  command: ['vitest', 'run', '--project', 'neighbours'],
  seconds: 90,
  needs: [debianUnless(hasGo)],
  prepare: () => runScript('node', 'e2e/neighbours/build.ts'),
};

/** Random cards and nodes, with more runs than the unit tests have time for. */
const cards: Part = {
  name: 'odd cards',
  versions: '500 cards and nodes',
  command: ['vitest', 'run', '--project', 'quick', '--reporter=verbose', 'quirky-card', 'quirky-node'],
  env: () => ({ NETDRA_QUIRK_RUNS: '500' }),
  seconds: 40,
  needs: [],
};

/** Runs a part of `npm test` without root, where the tests skip other cases and the kernel refuses more. */
function asOrdinaryUser(part: Part): Part {
  return {
    ...part,
    name: `${part.name}, ordinary user`,
    command: ['bash', 'scripts/ordinary-user.sh', ...part.command],
    seconds: part.seconds + 15,
    needs: [...part.needs, ordinaryUser],
  };
}

/**
 * Parts of `npm run test:all` beside those of `npm test`. The longest come first, so that both lanes end at about the same time.
 * The two machines that QEMU emulates share a lane, since each takes a processor. On two processors a third lane saves no time,
 * and slows the parts down so much that waits in them time out.
 */
export const restStages: readonly Stage[] = [
  [[restOfSimulation]],
  [[asOrdinaryUser(units)]],
  [[asOrdinaryUser(integration)]],
  [
    [machine, faults, kind, machineWithKubelet, site],
    [newestCluster, release, oldestCluster, upgrade, tools, neighbours, cards],
  ],
];
