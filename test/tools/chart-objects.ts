import { readFileSync } from 'node:fs';
import type { V1DaemonSet } from '@kubernetes/client-node';
import { expect } from 'vitest';
import { parseObjects, type RenderOptions, renderChart, renderObjects } from '../../e2e/release/chart.ts';
import { findTypeProblems } from '../unit/deploy/kubernetes-types.ts';

export const read = (path: string) => readFileSync(new URL(`../../deploy/${path}`, import.meta.url), 'utf8');

export function find<T>(kind: string, values: Record<string, unknown>): T {
  const found = renderObjects({ values }).filter((object) => object.kind === kind);
  if (found.length !== 1) throw new Error(`${found.length} objects of kind ${kind}`);
  return found[0] as T;
}

export const podOf = (values: Record<string, unknown>) => find<V1DaemonSet>('DaemonSet', values).spec?.template.spec;

/** Kinds that Kubernetes itself does not have. */
const custom = ['ServiceMonitor', 'PrometheusRule', 'SecurityContextConstraints'];

/** @returns problems of the rendered objects, as `kind: path: problem` */
export function problemsOf(options: RenderOptions): string[] {
  const text = renderChart({ ...options, withTests: true });
  // What Helm prints for a value that is not there.
  expect(text).not.toContain('<no value>');
  return parseObjects(text)
    .filter(({ kind = '' }) => !custom.includes(kind))
    .flatMap((object) => findTypeProblems(object, `V1${object.kind}`).map((problem) => `${object.kind}: ${problem}`));
}
