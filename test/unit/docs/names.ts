import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { buildMetrics } from '../deploy/build-metrics.ts';
import { repo } from './pages.ts';

interface Schema {
  properties?: Record<string, Schema>;
}
const values = JSON.parse(readFileSync(join(repo, 'deploy/helm/netdra/values.schema.json'), 'utf8')) as Schema;

/** Names of all metrics that a driver serves. */
export async function listMetrics(): Promise<string[]> {
  const { text } = await buildMetrics().render();
  return [...text.matchAll(/^# TYPE (\w+)/gm)].map(([, name = '']) => name);
}

/**
 * What is wrong with code within a line that has the form of a name: a metric that the driver does not serve, a value that
 * the chart does not have, or a file that is neither in the repository nor beside the page.
 */
export function findNameProblem(code: string, metrics: readonly string[], page = ''): string | undefined {
  if (/^(src|nri|test|e2e|deploy|scripts|programs|proto|examples)\/[\w./-]+\.\w+$/.test(code)) {
    const folders = [repo, dirname(join(repo, page))];
    return folders.some((folder) => existsSync(join(folder, code))) ? undefined : `there is no file ${code}`;
  }
  const [, metric] = /^((?:netdra|dra_metadata)_\w+)(?:\{.*\})?$/.exec(code) ?? [];
  if (metric !== undefined) {
    const isKnown = metrics.includes(metric) || metrics.includes(metric.replace(/_(bucket|sum|count)$/, ''));
    return isKnown ? undefined : `the driver has no metric ${metric}`;
  }
  const [, path = ''] = /^(\w+(?:\.\w+)+)(?:[:=].*)?$/.exec(code) ?? [];
  const [first = '', ...rest] = path.split('.');
  let level = values.properties?.[first];
  for (const key of level?.properties === undefined ? [] : rest) {
    if (level?.properties !== undefined && !(key in level.properties)) return `the chart has no value ${path}`;
    level = level?.properties?.[key];
  }
  return undefined;
}
