import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { loadAllYaml, type V1Container, type V1DeviceClass, type V1Pod } from '@kubernetes/client-node';
import { describe, expect, it } from 'vitest';
import { selectedKind } from '../../../src/cli/selected-kind.ts';
import { listPages, readSnippets, repo } from './pages.ts';

const read = (name: string) => readFileSync(join(repo, 'examples', name), 'utf8');
const podsOf = (text: string) =>
  (loadAllYaml(text) as V1Pod[]).filter(({ kind }) => kind === 'Pod').map(({ spec }) => spec!);
const containersOf = (text: string) =>
  podsOf(text).flatMap(({ initContainers = [], containers }) => [...initContainers, ...containers]);

/** As Kubernetes decides on the QoS class Guaranteed. Source: pkg/apis/core/v1/helper/qos/qos.go. */
const isGuaranteed = ({ resources: { requests = {}, limits = {} } = {} }: V1Container) =>
  ['cpu', 'memory'].every((name) => limits[name] !== undefined && (requests[name] ?? limits[name]) === limits[name]);

describe('examples that need exclusive CPUs', () => {
  const pinned = readdirSync(join(repo, 'examples'))
    .filter((name) => name.endsWith('.yaml'))
    .filter((name) => /dpdk-testpmd|hugepages|numa: require/.test(read(name)));

  it('include the examples for bonds, testpmd, several NICs and NUMA alignment', () => {
    expect(pinned).toEqual(
      expect.arrayContaining(['bond-dpdk.yaml', 'dpdk-testpmd.yaml', 'multi-nic.yaml', 'numa-aligned.yaml']),
    );
  });

  it.each(pinned)('%s has only pods of QoS class Guaranteed', (name) => {
    const containers = containersOf(read(name));
    expect(containers.length).toBeGreaterThan(1);
    expect(containers.filter((each) => !isGuaranteed(each)).map((each) => each.name)).toEqual([]);
    // A container that polls has whole CPUs.
    expect(containers.some(({ resources }) => /^\d+$/.test(`${resources?.limits?.cpu}`))).toBe(true);
  });

  it.each(pinned)('%s does not name CPU cores', (name) => {
    const words = containersOf(read(name)).flatMap(({ args = [] }) => args);
    expect(words.join(' ')).not.toMatch(/ (-l|--lcores|--main-lcore)[ =]/);
  });
});

it('every example whose pod runs as another user gives it the huge pages, which belong to root', () => {
  const names = readdirSync(join(repo, 'examples')).filter((name) => name.endsWith('.yaml'));
  const pods = names
    .flatMap((name) => podsOf(read(name)))
    .filter(({ securityContext }) => securityContext?.runAsNonRoot);
  const withHugePages = pods.filter(({ volumes = [] }) => JSON.stringify(volumes).includes('HugePages'));
  expect(withHugePages).not.toEqual([]);
  for (const { securityContext } of withHugePages) expect(securityContext?.fsGroup).toBe(securityContext?.runAsGroup);
});

it('no example uses host-local, which assigns the same addresses on each node', () => {
  const names = readdirSync(join(repo, 'examples')).filter((name) => name.endsWith('.yaml'));
  expect(names.filter((name) => /type: host-local/.test(read(name)))).toEqual([]);
});

it.each([
  ...readdirSync(join(repo, 'examples'))
    .filter((name) => name.endsWith('.yaml'))
    .map((name) => `examples/${name}`),
  ...listPages(),
])('%s has only classes that select either VFs or whole NICs', (path) => {
  const texts = path.endsWith('.md')
    ? readSnippets(path).flatMap(({ info, content }) => (info === 'yaml' ? [content] : []))
    : [readFileSync(join(repo, path), 'utf8')];
  const classes = texts
    .flatMap((text) => loadAllYaml(text) as V1DeviceClass[])
    .filter(({ kind }) => kind === 'DeviceClass');
  const both = classes.filter(({ spec: { selectors = [] } }) =>
    selectors.every(({ cel }) => selectedKind(cel?.expression ?? '') === undefined),
  );
  expect(both.map(({ metadata }) => metadata?.name)).toEqual([]);
});

interface Example {
  kind?: string;
  metadata?: { name?: string };
  spec?: Record<string, unknown> & { replicas?: number; template?: { spec?: V1Pod['spec'] } };
}

/** Each address that a VFConfig of the object gives, without its prefix length. */
const addressesIn = (object: Example) =>
  [...JSON.stringify(object).matchAll(/"addresses":\[([^\]]*)\]/g)].flatMap(([, list = '']) =>
    [...list.matchAll(/"(?:address":")?([0-9a-f.:]+)\/\d+"/g)].map(([, address = '']) => address),
  );

describe('addresses of the examples', () => {
  const objects = readdirSync(join(repo, 'examples'))
    .filter((name) => name.endsWith('.yaml'))
    .map((name) => ({ name, objects: loadAllYaml(read(name)) as Example[] }));
  const claims = objects.flatMap(({ name, objects }) =>
    objects.filter(({ kind }) => /^ResourceClaim(Template)?$/.test(kind ?? '')).map((object) => ({ name, object })),
  );

  it('are unique across all examples', () => {
    const all = claims.flatMap(({ object }) => addressesIn(object));
    expect(all.length).toBeGreaterThan(5);
    expect(all.filter((address, index) => all.indexOf(address) !== index)).toEqual([]);
  });

  it('are not in claim templates, and a claim with addresses is used by one pod', () => {
    const withSome = claims.filter(({ object }) => addressesIn(object).length > 0);
    expect(withSome.filter(({ object }) => object.kind === 'ResourceClaimTemplate').map(({ name }) => name)).toEqual(
      [],
    );
    for (const { name, object } of withSome) {
      const users = objects
        .filter((each) => each.name === name)
        .flatMap((each) => each.objects)
        .filter((each) => JSON.stringify(each).includes(`"resourceClaimName":"${object.metadata?.name}"`));
      const pods = users.reduce((sum, { spec }) => sum + (spec?.replicas ?? 1), 0);
      expect(pods, name).toBeLessThanOrEqual(1);
    }
  });
});
