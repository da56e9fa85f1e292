import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { loadYaml, type V1DaemonSet } from '@kubernetes/client-node';
import { describe, expect, it } from 'vitest';
import { repository as repo } from '../../../scripts/run-command.ts';
import { buildMetrics } from './build-metrics.ts';
import { findObject } from './manifest-objects.ts';

const [valuesPage = '', permissionsPage = '', metricsPage = ''] = ['values', 'permissions', 'metrics'].map((name) =>
  readFileSync(join(repo, `docs/${name}.md`), 'utf8'),
);
const defaults = loadYaml<Record<string, unknown>>(readFileSync(join(repo, 'deploy/helm/netdra/values.yaml'), 'utf8'));
describe('the reference pages for operators', () => {
  it('name every chart value once, and no other', () => {
    const rows = [...valuesPage.matchAll(/^\| (`[a-zA-Z.]+`(?:, `[a-zA-Z.]+`)*) \| .* \| .* \|$/gm)].map(
      ([, first = '']) => first,
    );
    const named = rows.flatMap((row) => {
      const names = [...row.matchAll(/`([\w.]+)`/g)].map(([, name = '']) => name);
      const parent = names[0]?.replace(/\.[^.]*$/, '') ?? '';
      return names.map((name) => (name.startsWith('.') ? `${parent}${name}` : name));
    });
    const paths = (value: unknown, path: string[] = []): string[] => {
      const isLeaf = path.length === 2 || typeof value !== 'object' || value === null || Array.isArray(value);
      const entries = isLeaf ? [] : Object.entries(value);
      return entries.length === 0 ? [path.join('.')] : entries.flatMap(([key, inner]) => paths(inner, [...path, key]));
    };
    expect(named.sort()).toEqual(paths(defaults).sort());
  });

  it('give a reason for every capability and every mount', () => {
    const pod = findObject<V1DaemonSet>('DaemonSet').spec?.template.spec;
    const [container] = pod?.containers ?? [];
    const rows = (pattern: RegExp) => [...permissionsPage.matchAll(pattern)].map(([, name]) => name);
    expect(rows(/^\| `([A-Z]+_[A-Z]+)` \| \S/gm)).toEqual(container?.securityContext?.capabilities?.add);
    const mounts = [...permissionsPage.matchAll(/^\| `(\/[^`]+)` \| ([^|]+) \| \S/gm)].map(([, path, how = '']) => ({
      path,
      how,
    }));
    const always = mounts.filter(({ how }) => !how.includes('with '));
    expect(always.map(({ path, how }) => [path, how.startsWith('read-only'), how.includes('HostToContainer')])).toEqual(
      container?.volumeMounts?.map((each) => [
        each.mountPath,
        each.readOnly ?? false,
        each.mountPropagation === 'HostToContainer',
      ]),
    );
  });

  it('name every metric, and no other', async () => {
    const { text } = await buildMetrics().render();
    const known = [...text.matchAll(/^# TYPE (\w+)/gm)].map(([, name]) => name);
    const named = [...metricsPage.matchAll(/`((?:netdra|dra_metadata|process|nodejs)_\w+)`/g)].map(([, name]) => name);
    expect(named.sort()).toEqual(known.sort());
  });
});
