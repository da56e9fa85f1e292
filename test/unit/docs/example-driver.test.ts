import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { loadAllYaml, type V1ClusterRole, type V1DaemonSet } from '@kubernetes/client-node';
import { describe, expect, it } from 'vitest';
import { findTypeProblems } from '../deploy/kubernetes-types.ts';
import { repo } from './pages.ts';

const read = (path: string) => readFileSync(join(repo, path), 'utf8');
const objects = loadAllYaml(read('examples/driver/daemonset.yaml')) as { kind: string }[];
const find = <T>(kind: string) => objects.find((object) => object.kind === kind) as T;

describe('the DaemonSet of the example driver', () => {
  it('has only fields that Kubernetes knows', () => {
    const types: Record<string, string> = { ClusterRole: 'V1ClusterRole', DaemonSet: 'V1DaemonSet' };
    for (const { kind, ...object } of objects) {
      const type = types[kind] ?? `V1${kind}`;
      expect(findTypeProblems({ kind, ...object }, type), kind).toEqual([]);
    }
  });

  it('sets the variables that the driver reads, and mounts the directories that it uses', () => {
    const { containers, volumes = [] } = find<V1DaemonSet>('DaemonSet').spec!.template.spec!;
    const [{ env = [], volumeMounts = [] }] = containers as [(typeof containers)[0]];
    expect(env.map(({ name }) => name)).toEqual(['NODE_NAME', 'POD_UID']);
    const source = read('examples/driver/driver.ts');
    const defaults = [...source.matchAll(/_DIR: \w+ = '([^']+)'/g)].map(([, path = '']) => path);
    expect(defaults).toHaveLength(3);
    for (const path of defaults) expect(volumeMounts.some(({ mountPath }) => mountPath.startsWith(path))).toBe(true);
    expect(volumes.map(({ hostPath }) => hostPath?.path)).toEqual(volumeMounts.map(({ mountPath }) => mountPath));
  });

  it('has the permissions that docs/driver-authors.md lists', () => {
    const rows = [...read('docs/driver-authors.md').matchAll(/^\| `(\w+)` \| ([a-z, ]+) \|/gm)];
    const listed = rows.map(([, resource, verbs]) => `${resource}: ${verbs}`).sort();
    const { rules = [] } = find<V1ClusterRole>('ClusterRole');
    const granted = rules.flatMap(({ resources = [], verbs }) =>
      resources.map((each) => `${each}: ${verbs.join(', ')}`),
    );
    expect(granted.sort()).toEqual(listed);
  });
});
