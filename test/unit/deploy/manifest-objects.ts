import { readFileSync } from 'node:fs';
import type { KubernetesObject } from '@kubernetes/client-node';
import { parseObjects } from '../../../e2e/release/chart.ts';

/** The objects of deploy/manifests/netdra.yaml. */
export const manifestObjects: KubernetesObject[] = parseObjects(
  readFileSync(new URL('../../../deploy/manifests/netdra.yaml', import.meta.url), 'utf8'),
);

/** @throws unless there is one of that kind with that name */
export function findObject<T extends KubernetesObject>(kind: string, name = 'netdra'): T {
  const found = manifestObjects.filter((object) => object.kind === kind && object.metadata?.name === name);
  if (found.length !== 1) throw new Error(`${found.length} objects of kind ${kind} named ${name}`);
  return found[0] as T;
}
