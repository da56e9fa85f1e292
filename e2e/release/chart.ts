import { fileURLToPath } from 'node:url';
import type { KubernetesObject } from '@kubernetes/client-node';
import { loadAll } from 'js-yaml';
import { cacheFolder } from '../node/tools.ts';
import { type HelmVersion, runHelm, valueArguments } from './helm.ts';

/** The chart's folder. */
export const chartDir = fileURLToPath(new URL('../../deploy/helm/netdra', import.meta.url));

export interface RenderOptions {
  /** What `helm install` is given. */
  values?: Record<string, unknown>;
  /** Default: netdra. */
  releaseName?: string;
  /** Default: kube-system. */
  namespace?: string;
  /** Default: the newest Helm. */
  version?: HelmVersion;
  /** A chart elsewhere, with the options that it needs: `oci://…`, `--plain-http`. Default: that of the repository. */
  chart?: string[];
}

/**
 * What `helm template` prints, without the chart's tests.
 * @throws CommandError, also for values that the schema of the chart refuses; NetdraError `tool-missing`
 */
export function renderChart(options: RenderOptions = {}): string {
  const { values = {}, releaseName = 'netdra', namespace = 'kube-system', version, chart = [chartDir] } = options;
  const args = ['template', releaseName, ...chart, '--namespace', namespace, '--skip-tests', ...valueArguments(values)];
  return runHelm(cacheFolder(process.env), args, version === undefined ? {} : { version });
}

/** The same as objects. */
export function renderObjects(options: RenderOptions = {}): KubernetesObject[] {
  return parseObjects(renderChart(options));
}

/** The objects of a YAML text, with all fields as they are written. */
export function parseObjects(text: string): KubernetesObject[] {
  return loadAll(text).filter((object) => object !== null && object !== undefined) as KubernetesObject[];
}

/** What deploy/manifests/netdra.yaml holds: the chart with its default values. */
export function renderManifest(): string {
  const head = `# The driver on every node: kubectl apply -f deploy/manifests/netdra.yaml
# Kubernetes 1.34 or newer, containerd with NRI and CDI. Set the image to where you have pushed it.
# Made from the chart by \`npm run manifests\`; a test checks that it is current.
`;
  return `${head}${renderChart()}`;
}
