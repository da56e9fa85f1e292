import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type ExistingSettings, type KindSettings, repository, type SuiteSettings } from './settings.ts';

/** A program with its arguments, run in the root folder of the repository. */
export interface ProgramCall {
  program: string;
  args: string[];
  env?: Record<string, string>;
}

/** Where to get the programs that are not part of the repository; each text ends a sentence. */
export const sources: Record<string, string> = {
  docker: 'install it: https://docs.docker.com/engine/install',
  podman: 'install it: https://podman.io/docs/installation',
  kind: 'install a release with an image of Kubernetes 1.36: https://kind.sigs.k8s.io/docs/user/quick-start/#installation',
  helm: 'install it: https://helm.sh/docs/intro/install',
  kubectl: 'install it: https://kubernetes.io/docs/tasks/tools/#kubectl',
};

const release = 'netdra';
const installTimeout = '5m';

/** Programs that must be in PATH. */
export function neededPrograms(settings: SuiteSettings): string[] {
  if (settings.mode === 'kind') return [settings.engine, 'kind', 'helm'];
  return settings.install ? ['helm', 'kubectl'] : [];
}

export const imagesArchive = ({ workDir }: KindSettings) => join(workDir, 'images.tar');
export const logsFolder = ({ workDir }: KindSettings) => join(workDir, 'logs');

function kind({ engine }: KindSettings, ...args: string[]): ProgramCall {
  return { program: 'kind', args, env: { KIND_EXPERIMENTAL_PROVIDER: engine } };
}

export function listClusters(settings: KindSettings): ProgramCall {
  return kind(settings, 'get', 'clusters');
}

const oneNode = join(repository, 'e2e/kind/kind.yaml');

/** Path of the cluster's configuration. */
const kindConfig = ({ workers, workDir }: KindSettings) => (workers === 0 ? oneNode : join(workDir, 'kind.yaml'));

/** Writes the configuration of a cluster with workers: that of one node, with more nodes. */
export function writeKindConfig(settings: KindSettings): void {
  const { workers } = settings;
  if (workers === 0) return;
  const first = '  - role: control-plane\n';
  const text = readFileSync(oneNode, 'utf8').replace(first, first + '  - role: worker\n'.repeat(workers));
  writeFileSync(kindConfig(settings), text);
}

export function createCluster(settings: KindSettings): ProgramCall {
  const { name, nodeImage, kubeconfig } = settings;
  const options = ['--name', name, '--image', nodeImage, '--config', kindConfig(settings), '--kubeconfig', kubeconfig];
  // Not --retain: a cluster that failed to start cannot be tested.
  return kind(settings, 'create', 'cluster', ...options, '--wait', installTimeout);
}

export function deleteCluster(settings: KindSettings): ProgramCall {
  const { name, kubeconfig } = settings;
  return kind(settings, 'delete', 'cluster', '--name', name, '--kubeconfig', kubeconfig);
}

/** For a cluster left by an earlier run. */
export function writeKubeconfig(settings: KindSettings): ProgramCall {
  const { name, kubeconfig } = settings;
  return kind(settings, 'export', 'kubeconfig', '--name', name, '--kubeconfig', kubeconfig);
}

export function exportLogs(settings: KindSettings): ProgramCall {
  return kind(settings, 'export', 'logs', '--name', settings.name, logsFolder(settings));
}

export function buildImages({ engine, driverImage, consumerImage, imageArchives }: KindSettings): ProgramCall[] {
  if (imageArchives !== undefined) return [];
  // Attestations turn an image into an index, with entries without a platform.
  const env = { DOCKER_BUILDKIT: '1', BUILDX_NO_DEFAULT_ATTESTATIONS: '1' };
  const build = (image: string, file: string, context: string): ProgramCall => ({
    program: engine,
    args: ['build', '--tag', image, '--file', join(repository, file), join(repository, context)],
    env,
  });
  return [build(driverImage, 'Dockerfile', '.'), build(consumerImage, 'e2e/kind/consumer.Dockerfile', 'programs')];
}

/** Uses an archive, which both engines write and kind loads from either. */
export function loadImages(settings: KindSettings): ProgramCall[] {
  const { engine, name, driverImage, consumerImage, imageArchives } = settings;
  const load = (archives: readonly string[]) => kind(settings, 'load', 'image-archive', ...archives, '--name', name);
  if (imageArchives !== undefined) return [load(imageArchives)];
  const archive = imagesArchive(settings);
  const several = engine === 'podman' ? ['--multi-image-archive'] : [];
  return [
    { program: engine, args: ['save', ...several, '--output', archive, driverImage, consumerImage] },
    load([archive]),
  ];
}

/** @param run unique for each run, so that pods are recreated although their image has the same name */
export function installChart(settings: SuiteSettings, run: string): ProgramCall {
  const { kubeconfig, driverNamespace, driverImage, values } = settings;
  const { repository: image, tag } = parseImage(driverImage);
  // An update of one node waits for no other node. Three would take most of a minute with the default.
  const minReadySeconds = settings.mode === 'existing' ? undefined : settings.workers === 0 ? 0 : 2;
  const set = { 'image.repository': image, 'image.tag': tag, 'kubeletPlugin.podAnnotations.run': run };
  return {
    program: 'helm',
    args: [
      'upgrade',
      '--install',
      release,
      join(repository, 'deploy/helm/netdra'),
      '--kubeconfig',
      kubeconfig,
      '--namespace',
      driverNamespace,
      '--create-namespace',
      ...values.flatMap((file) => ['--values', file]),
      ...Object.entries(set).flatMap(([key, value]) => ['--set-string', `${key}=${value}`]),
      ...(minReadySeconds === undefined ? [] : ['--set', `kubeletPlugin.minReadySeconds=${minReadySeconds}`]),
      '--wait',
      '--timeout',
      installTimeout,
    ],
  };
}

/** Removes what {@link installChart} created in a cluster that stays. */
export function uninstallChart({ kubeconfig, driverNamespace }: ExistingSettings): ProgramCall[] {
  const helm = ['uninstall', release, '--kubeconfig', kubeconfig, '--namespace', driverNamespace];
  const kubectl = ['delete', 'namespace', driverNamespace, '--kubeconfig', kubeconfig];
  return [
    { program: 'helm', args: [...helm, '--wait', '--timeout', installTimeout] },
    { program: 'kubectl', args: [...kubectl, '--ignore-not-found', '--timeout', installTimeout] },
  ];
}

export function runTests(settings: SuiteSettings, target: Record<string, string>): ProgramCall {
  const config = join(repository, 'e2e/kind/vitest.config.ts');
  const more = settings.mode === 'kind' && settings.workers > 0 ? ['nodes.test.ts'] : [];
  const args = ['run', '--config', config, 'cluster.test.ts', ...more, ...settings.testArguments];
  return { program: 'vitest', args, env: target };
}

/** A registry can have a port: the tag is after the last slash. */
function parseImage(image: string): { repository: string; tag: string } {
  const [, name = image, tag = ''] = /^(.*[^/]):([^/:]+)$/.exec(image) ?? [];
  return { repository: name, tag };
}

/** The command line as a user would type it. */
export function formatCall({ program, args, env = {} }: ProgramCall): string {
  const quote = (word: string) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
  const variables = Object.entries(env).map(([name, value]) => `${name}=${quote(value)}`);
  return [...variables, program, ...args.map(quote)].join(' ');
}
