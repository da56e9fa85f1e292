import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { loadYaml } from '@kubernetes/client-node';
import { Command, InvalidArgumentError, Option } from 'commander';
import { findFolderWith, pathFolders } from '../../scripts/packages/host-programs.ts';
import { NetdraError } from '../../src/lib/errors.ts';

export const repository = fileURLToPath(new URL('../..', import.meta.url)).replace(/\/$/, '');

const installedEngines = ['docker', 'podman'] as const;
/** `own`: podman from Debian packages, on a separate node, with a node image made here (engine/). */
export const engines = [...installedEngines, 'own'] as const;
export type Engine = (typeof engines)[number];

interface CommonSettings {
  kubeconfig: string;
  driverImage: string;
  consumerImage: string;
  /** Values files for the chart; later ones take precedence. */
  values: string[];
  /** Namespace of the driver, whether installed already or not. */
  driverNamespace: string;
  /** Whether the suite's objects are kept in any case. */
  keep: boolean;
  /** Arguments for vitest. */
  testArguments: string[];
}

/** A cluster that the suite creates. */
export interface KindSettings extends CommonSettings {
  mode: 'kind';
  engine: Engine;
  name: string;
  nodeImage: string;
  /** Nodes beside the one with the control plane. With some, the cases of several nodes run, too. */
  workers: number;
  /** A folder for temporary files. */
  workDir: string;
  /** Whether to use the cluster that an earlier run has kept. */
  reuse: boolean;
  /** On the separate node of engine/, where nothing remains after the run: archives with the two images. */
  imageArchives?: readonly string[];
}

/** An existing cluster, which is kept. */
export interface ExistingSettings extends CommonSettings {
  mode: 'existing';
  /** `false`: the driver is already installed. */
  install: boolean;
}

export type SuiteSettings = KindSettings | ExistingSettings;

const defaultNodeImage = 'kindest/node:v1.36.1';

/** Names under which images are built; never pulled, since no registry is called localhost. */
const ownImages = { driver: 'localhost/netdra/driver:e2e', consumer: 'localhost/netdra/consumer:e2e' };

interface Flags {
  existing?: true;
  kubeconfig?: string;
  engine?: Engine;
  name: string;
  nodeImage?: string;
  workers: number;
  values: string[];
  driverImage?: string;
  consumerImage?: string;
  install: boolean;
  driverNamespace?: string;
  keep?: true;
  reuse?: true;
}

export function suiteCommand(): Command {
  const collect = (value: string, before: string[]) => [...before, resolve(value)];
  return new Command('npm run e2e:kind --')
    .description('test netdra on a kind cluster of its own, or on a cluster that is there')
    .option('--name <name>', 'name of the kind cluster', parseName, 'netdra-e2e')
    .option('--node-image <image>', `image of its node: Kubernetes 1.36 or newer; default ${defaultNodeImage}`)
    .option('--workers <number>', 'more nodes, 2 or more, and the cases of several nodes, too', parseWorkers, 0)
    .addOption(
      new Option(
        '--engine <name>',
        'what runs containers; own: podman from Debian packages, with a node image built here; default: ' +
          'KIND_EXPERIMENTAL_PROVIDER of the environment, or what is there, or own',
      ).choices(engines),
    )
    .option('--reuse', 'take the kind cluster that a run before has kept')
    .option('--keep', 'leave everything there in the end, also after success')
    .option('--existing', 'take the cluster of --kubeconfig instead, and leave it there')
    .option('--kubeconfig <path>', 'of the cluster that is there; default: KUBECONFIG of the environment')
    .option('--values <file>', 'values for the chart; can be given again', collect, [])
    .option('--driver-image <image>', 'where its nodes find the driver: REPOSITORY:TAG')
    .option('--consumer-image <image>', 'where they find the image of the tests, e2e/kind/consumer.Dockerfile')
    .option('--no-install', 'the driver is installed, with --values')
    .option(
      '--driver-namespace <name>',
      'of the driver; default netdra in kind, netdra-e2e in an existing cluster, kube-system with --no-install',
    )
    .argument('[vitest...]', 'after --, arguments for vitest: -t "Cleanup"')
    .showHelpAfterError('(npm run e2e:kind -- --help lists the options)')
    .exitOverride();
}

function parseName(name: string): string {
  if (/^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$/.test(name) && name.length <= 50) return name;
  throw new InvalidArgumentError('lower-case letters, digits, dots and hyphens');
}

function parseWorkers(text: string): number {
  if (/^[2-9]$/.test(text)) return Number(text);
  throw new InvalidArgumentError('from 2 to 9: the cases need three nodes');
}

/**
 * @param argv without program and script
 * @throws CommanderError for wrong usage; NetdraError `setting-missing`, `engine-missing`
 */
export function parseSettings(argv: string[], env: NodeJS.ProcessEnv): SuiteSettings {
  const command = suiteCommand();
  command.parse(argv, { from: 'user' });
  const flags = command.opts<Flags>();
  return flags.existing ? existingSettings(flags, command.args, env) : kindSettings(flags, command.args, env);
}

function kindSettings(flags: Flags, testArguments: string[], env: NodeJS.ProcessEnv): KindSettings {
  const {
    name,
    workers,
    nodeImage = defaultNodeImage,
    keep = false,
    reuse = false,
    driverNamespace = 'netdra',
  } = flags;
  const workDir = join(repository, 'test-results/kind', name);
  const engine = flags.engine ?? findEngine(env);
  if (engine === 'own') refuseForOwnEngine(flags);
  return {
    mode: 'kind',
    engine,
    name,
    workers,
    nodeImage,
    keep,
    reuse,
    driverNamespace,
    testArguments,
    workDir,
    kubeconfig: join(workDir, 'kubeconfig'),
    driverImage: ownImages.driver,
    consumerImage: ownImages.consumer,
    values: [join(repository, 'e2e/kind/values.yaml'), ...flags.values],
  };
}

function existingSettings(flags: Flags, testArguments: string[], env: NodeJS.ProcessEnv): ExistingSettings {
  const { install, keep = false, values, driverNamespace = install ? 'netdra-e2e' : 'kube-system' } = flags;
  const kubeconfig = required(flags.kubeconfig ?? env.KUBECONFIG, '--kubeconfig, or KUBECONFIG in the environment');
  if (kubeconfig.includes(':')) {
    throw new NetdraError('setting-missing', '--existing takes one kubeconfig, and KUBECONFIG names several', {
      hint: 'kubectl config view --flatten --minify writes one',
    });
  }
  return {
    mode: 'existing',
    install,
    keep,
    driverNamespace,
    values,
    testArguments,
    kubeconfig: resolve(kubeconfig),
    driverImage: install ? required(flags.driverImage, '--driver-image: build and push it first') : '',
    consumerImage: required(flags.consumerImage, '--consumer-image: build and push it first'),
  };
}

function required(value: string | undefined, what: string): string {
  if (value !== undefined && value !== '') return value;
  throw new NetdraError('setting-missing', `--existing needs ${what}`, { hint: 'docs/kind.md says how' });
}

/** The cluster on an engine of its own ends with the run, and its node is made of our builds. */
function refuseForOwnEngine(flags: Flags): void {
  const flag = (['keep', 'reuse', 'nodeImage'] as const).find((name) => flags[name] !== undefined);
  if (flag === undefined) return;
  const name = flag === 'nodeImage' ? 'node-image' : flag;
  const problem = `--${name} needs docker or podman: the cluster on an engine of its own ends with the run`;
  throw new NetdraError('setting-missing', problem, { hint: 'start one of them, or name it with --engine' });
}

function findEngine(env: NodeJS.ProcessEnv): Engine {
  const wanted = env.KIND_EXPERIMENTAL_PROVIDER;
  if (!wanted) return installedEngines.find((name) => answers(name, env)) ?? 'own';
  const found = installedEngines.find((name) => name === wanted);
  if (found !== undefined) return found;
  throw new NetdraError(
    'engine-missing',
    `KIND_EXPERIMENTAL_PROVIDER is ${wanted}: only docker and podman are known here`,
    { hint: 'unset it, or name one of them' },
  );
}

/** Docker's client is also on machines without its daemon. */
function answers(engine: string, env: NodeJS.ProcessEnv): boolean {
  const folder = findFolderWith(pathFolders(env.PATH), [engine]);
  return folder !== undefined && spawnSync(join(folder, engine), ['info'], { env, timeout: 20_000 }).status === 0;
}

/** The chart's values that the tests need, as merged by Helm. */
export interface ChartFacts {
  driverName: string;
  kubeletPlugin: {
    simulate: string;
    openClaimFields: string[];
    kubeletRootDirectoryPath: string;
    kubeletPluginsDirectoryPath: string;
    cdiDirectoryPath: string;
  };
  admissionPolicies: { vfConfig: boolean };
  deviceClasses: { kernel: { name: string }; dpdk: { name: string } };
}

/** @throws Error for a file that cannot be read or is not YAML */
export function readChartFacts(files: string[]): ChartFacts {
  const read = (path: string) => loadYaml<Record<string, unknown>>(readFileSync(path, 'utf8')) ?? {};
  const defaults = read(join(repository, 'deploy/helm/netdra/values.yaml'));
  return files.map(read).reduce(mergeValues, defaults) as unknown as ChartFacts;
}

/** As in Helm: objects are merged, everything else is replaced. */
function mergeValues(base: Record<string, unknown>, over: Record<string, unknown>): Record<string, unknown> {
  const isObject = (value: unknown): value is Record<string, unknown> =>
    typeof value === 'object' && value !== null && !Array.isArray(value);
  const entries = Object.entries(over).map(([key, value]) => {
    const before = base[key];
    return [key, isObject(before) && isObject(value) ? mergeValues(before, value) : value];
  });
  return { ...base, ...Object.fromEntries(entries) };
}
