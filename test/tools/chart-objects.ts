import { readFileSync } from 'node:fs';
import type { V1DaemonSet } from '@kubernetes/client-node';
import { renderObjects } from '../../e2e/release/chart.ts';

export const read = (path: string) => readFileSync(new URL(`../../deploy/${path}`, import.meta.url), 'utf8');

export function find<T>(kind: string, values: Record<string, unknown>): T {
  const found = renderObjects({ values }).filter((object) => object.kind === kind);
  if (found.length !== 1) throw new Error(`${found.length} objects of kind ${kind}`);
  return found[0] as T;
}

export const podOf = (values: Record<string, unknown>) => find<V1DaemonSet>('DaemonSet', values).spec?.template.spec;
