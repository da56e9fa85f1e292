import { hasTools } from '../../e2e/node/tools.ts';
import { findMuslCompiler } from '../../programs/toolchain.ts';
import { cacheFolder } from '../packages/cache-folder.ts';
import { compiler, debianUnless, namespaces, type Part, root } from './part.ts';
import type { Stage } from './run.ts';

/** Number of schedules of `npm test`; `npm run test:all` runs the rest up to {@link allSchedules}. */
const firstSchedules = 1_000;
const allSchedules = 6_000;

const note = (line: string) => console.log(`netdra: ${line}`);

/** Requires the programs of a node, which in-node.sh provides. */
export const nodeTools = debianUnless(hasTools);

/** Returns the command that runs vitest on a separate node. */
export function onNode(...args: string[]): string[] {
  return ['bash', 'scripts/in-node.sh', 'vitest', 'run', '--reporter=verbose', ...args];
}

const types: Part = {
  name: 'types, lint, format',
  versions: 'TypeScript, Biome',
  command: ['bash', 'scripts/check.sh', '--code'],
  seconds: 10,
  needs: [],
};

export const units: Part = {
  name: 'units',
  versions: `Node.js ${process.versions.node}`,
  command: ['vitest', 'run', '--project', 'quick', '--reporter=verbose'],
  seconds: 60,
  needs: [],
};

export const integration: Part = {
  name: 'integration',
  versions: 'the kernel of this machine',
  command: onNode('--project', 'integration'),
  seconds: 120,
  needs: [namespaces, nodeTools],
};

const cPrograms: Part = {
  name: 'C programs',
  versions: 'sanitizers of gcc',
  command: onNode('--project', 'programs'),
  seconds: 45,
  needs: [namespaces, compiler, nodeTools],
  prepare: async () => {
    findMuslCompiler(cacheFolder(process.env), process.env, note);
  },
};

const firstSimulation: Part = {
  name: 'simulation',
  versions: `the first ${firstSchedules} schedules`,
  command: ['node', 'test/simulation/run.ts', '--schedules', `${firstSchedules}`],
  seconds: 25,
  needs: [],
};

const fuzz: Part = {
  name: 'fuzz',
  versions: 'two seconds of each target',
  // Without these two, which compare with an API server and the kernel: the cluster and integration tests run their cases.
  command: [
    'node',
    'test/fuzz/run.ts',
    '--seconds',
    '45',
    '--without',
    'policy-and-driver',
    '--without',
    'class-and-effects',
  ],
  env: () => ({ NETDRA_FUZZ_BUSY: 'yes' }),
  seconds: 50,
  needs: [],
};

const mainJob: Part = {
  name: 'containerd',
  versions: 'containerd 2.1 and 1.7',
  command: onNode('--project', 'e2e-node', 'main-job'),
  seconds: 20,
  needs: [root, nodeTools, compiler],
};

/** Stages of `npm test`. Types and units use all processors. */
export const shortStages: readonly Stage[] = [
  [[types]],
  [[units]],
  [[integration], [firstSimulation, fuzz, mainJob, cPrograms]],
];

/** Schedules that only `npm run test:all` runs. */
export const restOfSimulation: Part = {
  ...firstSimulation,
  name: 'more simulation',
  versions: `schedules ${firstSchedules + 1} to ${allSchedules}`,
  command: [
    'node',
    'test/simulation/run.ts',
    '--from',
    `${firstSchedules + 1}`,
    '--schedules',
    `${allSchedules - firstSchedules}`,
  ],
  seconds: 130,
};
