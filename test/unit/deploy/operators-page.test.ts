import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { loadYaml, type V1DaemonSet } from '@kubernetes/client-node';
import { describe, expect, it } from 'vitest';
import * as z from 'zod';
import packageInfo from '../../../package.json' with { type: 'json' };
import { inventoryPolicySchema } from '../../../src/node/inventory/index.ts';
import { buildMetrics } from './build-metrics.ts';
import { findObject } from './manifest-objects.ts';

const repo = fileURLToPath(new URL('../../../', import.meta.url));
const page = readFileSync(join(repo, 'docs/operators.md'), 'utf8');
const schema = z.fromJSONSchema(JSON.parse(readFileSync(join(repo, 'deploy/helm/netdra/values.schema.json'), 'utf8')));
const defaults = loadYaml<Record<string, unknown>>(readFileSync(join(repo, 'deploy/helm/netdra/values.yaml'), 'utf8'));
const blocks = [...page.matchAll(/^```(.*)\n([\s\S]*?)^```$/gm)].map(([, language = '', content = '']) => ({
  language,
  content,
}));
describe('docs/operators.md', () => {
  it('has blocks of kinds that are looked at here, and no others', () => {
    expect(new Set(blocks.map(({ language }) => language))).toEqual(new Set(['sh', 'yaml values', 'toml']));
    expect(page.match(/^```/gm)).toHaveLength(2 * blocks.length);
    for (const [, script = ''] of page.matchAll(/`npm run (\w+)`/g)) expect(packageInfo.scripts).toHaveProperty(script);
  });

  it('has values that the chart takes', () => {
    const [block] = blocks.filter(({ language }) => language === 'yaml values');
    const values = loadYaml<{ inventoryPolicy: object }>(block?.content ?? '');
    expect(schema.safeParse(values).error).toBeUndefined();
    const policy = { apiVersion: 'netdra.dev/v1alpha1', kind: 'InventoryPolicy', ...values.inventoryPolicy };
    expect(inventoryPolicySchema.parse(policy)).toEqual(policy);
  });

  it('names every value once, and no other', () => {
    const rows = [...page.matchAll(/^\| (`[a-zA-Z.]+`(?:, `[a-zA-Z.]+`)*) \| .* \| .* \|$/gm)].map(
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
    expect(named.filter((name) => !/^(NET|SYS)_ADMIN$/.test(name)).sort()).toEqual(paths(defaults).sort());
  });

  it('has a reason for every capability and every mount', () => {
    const pod = findObject<V1DaemonSet>('DaemonSet').spec?.template.spec;
    const [container] = pod?.containers ?? [];
    const rows = (pattern: RegExp) => [...page.matchAll(pattern)].map(([, name]) => name);
    expect(rows(/^\| `([A-Z]+_[A-Z]+)` \| \S/gm)).toEqual(container?.securityContext?.capabilities?.add);
    const mounts = [...page.matchAll(/^\| `(\/[^`]+)` \| ([^|]+) \| \S/gm)].map(([, path, how = '']) => ({
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

  it('names every metric, and no other', async () => {
    const { text } = await buildMetrics().render();
    const known = [...text.matchAll(/^# TYPE (\w+)/gm)].map(([, name]) => name);
    const named = [...page.matchAll(/`((?:netdra|dra_metadata|process|nodejs)_\w+)`/g)].map(([, name]) => name);
    expect(named.sort()).toEqual(known.sort());
  });
});
