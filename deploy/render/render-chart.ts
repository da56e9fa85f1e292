import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { KubernetesObject } from '@kubernetes/client-node';
import * as z from 'zod';
import { cacheFolder } from '../../e2e/node/tools.ts';
import { NetdraError } from '../../src/errors.ts';
import { locateRenderer } from './chart-tools.ts';
import { parseRawYaml } from './raw-yaml.ts';

const chartDir = fileURLToPath(new URL('../helm/netdra', import.meta.url));

export interface RenderOptions {
  /** What `helm install -f` would be given. */
  values?: Record<string, unknown>;
  /** Default: netdra. */
  releaseName?: string;
  /** Default: kube-system. */
  namespace?: string;
}

/** The order in which Helm applies kinds, as far as the chart has them; others come last. Source: Helm's InstallOrder. */
const installOrder = [
  'NetworkPolicy',
  'ServiceAccount',
  'ConfigMap',
  'ClusterRole',
  'ClusterRoleBinding',
  'Service',
  'DaemonSet',
];

/** @throws NetdraError `values-invalid`: as Helm does, before it renders */
export function checkValues(values: unknown): void {
  const schema = JSON.parse(readFileSync(`${chartDir}/values.schema.json`, 'utf8'));
  const result = z.fromJSONSchema(schema).safeParse(values);
  if (result.success) return;
  const problems = result.error.issues.map(({ path, message }) => `${path.join('.')}: ${message}`);
  throw new NetdraError('values-invalid', `values do not fit values.schema.json: ${problems.join('; ')}`);
}

/**
 * The chart's objects as `helm template` prints them: a text for each object, with its comments.
 * @throws NetdraError `values-invalid`, `chart-not-rendered`, `tool-missing`
 */
export function renderChart({
  values = {},
  releaseName = 'netdra',
  namespace = 'kube-system',
}: RenderOptions = {}): string[] {
  checkValues(values);
  const request = { chartDir, releaseName, namespace, values, kubeVersion: 'v1.36.0', apiVersions: ['v1'] };
  const { status, stdout, stderr } = spawnSync(locateRenderer(cacheFolder(process.env), process.env), {
    input: JSON.stringify(request),
    encoding: 'utf8',
  });
  if (status !== 0) throw new NetdraError('chart-not-rendered', `cannot render ${chartDir}: ${stderr.trim()}`);
  const texts = Object.values(JSON.parse(stdout) as Record<string, string>)
    .flatMap((text) => text.split(/^---$/m))
    .map((text) => `${text.trim()}\n`)
    .filter((text) => text !== '\n');
  const place = (text: string) => {
    const index = installOrder.indexOf(/^kind: (.*)$/m.exec(text)?.[1] ?? '');
    return index < 0 ? installOrder.length : index;
  };
  return texts.sort((a, b) => place(a) - place(b));
}

/** The same as objects. */
export function renderObjects(options: RenderOptions = {}): KubernetesObject[] {
  return renderChart(options).flatMap(parseRawYaml);
}

/** What deploy/manifests/netdra.yaml holds: the chart with its default values. */
export function renderManifest(): string {
  const head = `# The driver on every node: kubectl apply -f deploy/manifests/netdra.yaml
# Kubernetes 1.34 or newer, containerd with NRI and CDI. Set the image to where you have pushed it.
# Made from the chart by \`npm run manifests\`; a test checks that it is current.
`;
  return `${head}${renderChart().join('---\n')}`;
}
