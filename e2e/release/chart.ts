import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { KubernetesObject } from '@kubernetes/client-node';
import { load, loadAll } from 'js-yaml';
import { cacheFolder } from '../../scripts/packages/cache-folder.ts';
import { type HelmVersion, runHelm, valueArguments } from './helm.ts';

/** The cluster version for Helm; without it, a Helm built by `go build` assumes 1.20. */
const kubeVersion = '1.36.0';

/** The chart's folder. */
export const chartDir = fileURLToPath(new URL('../../deploy/helm/netdra', import.meta.url));

export interface RenderOptions {
  /** Values for `helm install`. */
  values?: Record<string, unknown>;
  /** Default: netdra. */
  releaseName?: string;
  /** Default: kube-system. */
  namespace?: string;
  /** Default: the newest Helm. */
  version?: HelmVersion;
  /** Default: the one in the repository. `oci://…` without TLS. */
  chart?: string;
  /** Includes the objects of `helm test`; default: excludes them. */
  withTests?: boolean;
}

/**
 * The output of `helm template`.
 * @throws CommandError, also for values that the schema of the chart refuses; NetdraError `tool-missing`
 */
export function renderChart(options: RenderOptions = {}): string {
  const { values = {}, releaseName = 'netdra', namespace = 'kube-system', version, chart = chartDir } = options;
  const args = [
    'template',
    releaseName,
    chart,
    '--namespace',
    namespace,
    '--kube-version',
    kubeVersion,
    ...(chart.startsWith('oci://') ? ['--plain-http'] : []),
    ...(options.withTests ? [] : ['--skip-tests']),
    ...valueArguments(values),
  ];
  return runHelm(cacheFolder(process.env), args, version === undefined ? {} : { version });
}

/** The same, parsed into objects. */
export function renderObjects(options: RenderOptions = {}): KubernetesObject[] {
  return parseObjects(renderChart(options));
}

/** The objects of a YAML text, with all fields as written. */
export function parseObjects(text: string): KubernetesObject[] {
  return loadAll(text).filter((object) => object !== null && object !== undefined) as KubernetesObject[];
}

/** @returns the chart's archive, in the folder @throws CommandError */
export function packageChart(cacheDir: string, dir: string, version: HelmVersion): string {
  runHelm(cacheDir, ['package', chartDir, '--destination', dir], { version });
  const { name, version: chartVersion } = readChart();
  return join(dir, `${name}-${chartVersion}.tgz`);
}

/**
 * Pushes an archive of the chart to a registry without TLS.
 * @param address `127.0.0.1:PORT`
 * @returns the chart's address for Helm, `oci://…/charts/netdra-chart`; all commands need `--plain-http`
 * @throws CommandError
 */
export function pushChart(cacheDir: string, archive: string, address: string, version: HelmVersion): string {
  const charts = `oci://${address}/charts`;
  runHelm(cacheDir, ['push', archive, charts, '--plain-http'], { version });
  return `${charts}/${readChart().name}`;
}

function readChart(): { name: string; version: string } {
  return load(readFileSync(join(chartDir, 'Chart.yaml'), 'utf8')) as { name: string; version: string };
}

/** Content of deploy/manifests/netdra.yaml: the chart with its default values. */
export function renderManifest(): string {
  const head = `# The driver on every node: kubectl apply -f deploy/manifests/netdra.yaml
# Kubernetes 1.34 or newer, containerd with NRI and CDI. Set the image to where you have pushed it.
# Made from the chart by \`npm run manifests\`; a test checks that it is current.
`;
  return `${head}${renderChart()}`;
}
