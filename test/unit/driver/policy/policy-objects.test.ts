import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, vi } from 'vitest';
import type { PolicyOrigin } from '../../../../src/driver/devices/policy-file.ts';
import { type NetworkDevicePolicy, PolicyObjects } from '../../../../src/driver/policy/index.ts';
import { NetdraError } from '../../../../src/lib/errors.ts';
import { textFiles } from '../../../../src/lib/text-files.ts';
import { periods } from '../../../../src/lib/waiting-times.ts';
import type { InventoryPolicy } from '../../../../src/node/inventory/index.ts';
import { itWith } from '../../../doubles/it-with.ts';
import { startKubeBench } from '../../../doubles/kube-bench.ts';
import { buildNode, testNode } from '../../../doubles/objects.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';

const kind = 'NetworkDevicePolicy';
const apiVersion = 'netdra.dev/v1alpha1';
const fileText = `apiVersion: ${apiVersion}\nkind: InventoryPolicy\npfs: [{ select: { name: of-file } }]\n`;
const pfsOf = (name: string) => ({ pfs: [{ select: { name: [name] } }] });
const policyOf = (name: string, nodeSelector: object = {}, policy: object = pfsOf(name), generation = 1) => ({
  apiVersion,
  kind,
  metadata: { name, generation },
  spec: { nodeSelector, ...policy },
});
/** Number of times that the driver reads the definition's state before a deletion counts. */
const looks = 4;
const rackA = { matchLabels: { rack: 'a' } };

async function startBench() {
  const bench = await startKubeBench();
  const { api, client: kube, clock, logger, stack } = bench;
  const dir = stack.use(tempDir());
  const { metadata, ...node } = buildNode(testNode);
  api.create({ ...node, metadata: { ...metadata, labels: { rack: 'a' } } } as never);
  /** What was put in force, in this order: the name of its PF, and where it is from. */
  const seen: [string | undefined, PolicyOrigin | undefined][] = [];
  const state = { refuses: '' };
  const filePath = join(dir.path, 'file.yaml');
  const statePath = join(dir.path, 'policy.json');
  const open = (path?: string) => {
    const filed = path === undefined ? {} : { filePath: path };
    const options = { node: testNode, files: textFiles, statePath, random: () => 0 };
    const source = stack.use(new PolicyObjects({ ...options, ...filed, kube, clock, logger }));
    return async () => {
      return await source.follow((policy: InventoryPolicy | undefined, origin) => {
        const name = policy?.pfs?.[0]?.select.name?.toString();
        if (name !== undefined && name === state.refuses) throw new NetdraError('policy-refused', `${name} has no VF`);
        seen.push([name, origin]);
      });
    };
  };
  return {
    ...bench,
    seen,
    state,
    filePath,
    statePath,
    open,
    writeFile: (text = fileText) => writeFileSync(filePath, text),
    edit: (name: string, change: (object: NetworkDevicePolicy) => void) =>
      api.edit<NetworkDevicePolicy>(kind, name, change),
    writes: () => api.requests(({ method, path }) => method === 'PATCH' && path.includes('networkdevicepolicies')),
  };
}

const it = itWith(startBench);
/** Follows until this is so: what the watch brings comes a little later. */
const until = (follow: () => Promise<unknown>, check: (fault: unknown) => void) =>
  vi.waitFor(async () => check(await follow()), { timeout: 5_000, interval: 5 });

const plural = 'networkdevicepolicies';
/** Lets the time pass until the driver has read once more whether the definition of a deleted object is still there. */
async function passLook(own: Awaited<ReturnType<typeof startBench>>, follow: () => Promise<unknown>) {
  const asked = () => own.api.requests(({ path }) => path === '/apis/netdra.dev/v1alpha1').length;
  const before = asked();
  await until(follow, () => expect(own.clock.sleeping()).toContain(periods.policyDeletion / looks));
  own.clock.advance(periods.policyDeletion / looks);
  await vi.waitFor(() => expect(asked()).toBe(before + 1));
}

/** Lets the time pass after which a deleted object counts, if its definition is still there. */
async function confirmDeletion(own: Awaited<ReturnType<typeof startBench>>, follow: () => Promise<unknown>) {
  for (let look = 0; look < looks; look++) await passLook(own, follow);
}

describe('PolicyObjects', () => {
  it('applies each generation of the object that selects the node once', async ({ own }) => {
    own.writeFile();
    own.api.create(policyOf('a', rackA));
    own.api.create(policyOf('b', { matchLabels: { rack: 'b' } }));
    const follow = own.open(own.filePath);
    expect([await follow(), await follow()]).toEqual([undefined, undefined]);
    expect(own.seen).toEqual([['a', { name: 'a', generation: 1 }]]);
    own.edit('a', ({ metadata, spec }) => {
      metadata.generation = 2;
      Object.assign(spec, pfsOf('a2'));
    });
    await until(follow, () => expect(own.seen.slice(1)).toEqual([['a2', { name: 'a', generation: 2 }]]));
    own.api.edit('Node', testNode, ({ metadata }) => Object.assign(metadata, { labels: { rack: 'b' } }));
    await until(follow, () => expect(own.seen.slice(2)).toEqual([['b', { name: 'b', generation: 1 }]]));
    expect(own.api.requests(({ method }) => method !== 'GET')).toEqual([]);
    expect(own.api.requests(({ path, isWatch }) => path === '/api/v1/nodes' && !isWatch)).toHaveLength(1);
  });

  it('applies the policy file while no object selects the node, and again after the object is deleted', async ({
    own,
  }) => {
    own.writeFile();
    const follow = own.open(own.filePath);
    await follow();
    own.api.create(policyOf('a'));
    await until(follow, () => expect(own.seen).toHaveLength(2));
    own.api.delete(kind, 'a');
    await confirmDeletion(own, follow);
    await until(follow, () => expect(own.seen).toHaveLength(3));
    const ofFile = ['of-file', { source: own.filePath }];
    expect(own.seen).toEqual([ofFile, ['a', { name: 'a', generation: 1 }], ofFile]);
    await own.open()();
    expect(own.seen.slice(3)).toEqual([[undefined, undefined]]);
  });

  it('keeps the policy of a deleted object while the file is invalid', async ({ own }) => {
    own.writeFile('broken');
    own.api.create(policyOf('a'));
    const follow = own.open(own.filePath);
    await follow();
    own.api.delete(kind, 'a');
    await confirmDeletion(own, follow);
    await until(follow, (fault) => expect(fault).toMatchObject({ code: 'policy-invalid' }));
    expect(own.seen).toHaveLength(1);
    // As without objects, a driver that starts with it does not start.
    await expect(own.open(own.filePath)()).rejects.toMatchObject({ code: 'policy-invalid' });
  });

  it('keeps the policy in force while several objects select the node', async ({ own }) => {
    own.api.create(policyOf('b'));
    const follow = own.open();
    await follow();
    own.api.create(policyOf('a', rackA));
    const message = 'several NetworkDevicePolicies select this node: a, b';
    await until(follow, (fault) => expect(fault).toMatchObject({ code: 'policy-refused', message }));
    expect(own.seen).toHaveLength(1);
    // How one object replaces another, without anything else in force in between.
    own.api.delete(kind, 'b');
    await until(follow, (fault) => expect(fault).toBeUndefined());
    expect(own.seen.slice(1)).toEqual([['a', { name: 'a', generation: 1 }]]);
  });

  it('keeps the policy in force while the newest object does not fit the node, and keeps checking that object', async ({
    own,
  }) => {
    own.writeFile();
    const follow = own.open(own.filePath);
    await follow();
    own.state.refuses = 'a';
    own.api.create(policyOf('a'));
    await until(follow, (fault) => expect(fault).toMatchObject({ message: 'a has no VF' }));
    expect(await follow()).toMatchObject({ message: 'a has no VF' });
    // The file is still followed.
    own.writeFile(fileText.replace('of-file', 'changed'));
    await follow();
    expect(own.seen.map(([name]) => name)).toEqual(['of-file', 'changed']);
    own.state.refuses = '';
    expect(await follow()).toBeUndefined();
    expect(own.seen.at(-1)).toEqual(['a', { name: 'a', generation: 1 }]);
  });

  it('rejects fields unknown to this version, also in a selector', async ({ own }) => {
    own.api.create(policyOf('a', { near: 'x' }, { colour: 'red' }));
    const follow = own.open();
    const refused = expect.objectContaining({ code: 'policy-refused', message: expect.stringMatching(/near.*colour/) });
    await expect(follow()).rejects.toEqual(refused);
    expect(own.seen).toEqual([]);
  });

  it('starts with the stored policy, or without one, while the API server is unreachable', async ({ own }) => {
    own.api.create(policyOf('a'));
    await own.open()();
    own.writeFile();
    own.api.edit(kind, 'a', (object: NetworkDevicePolicy) => Object.assign(object.metadata, { generation: 2 }));
    using away = own.api.hang((request) => request.method === 'GET');
    const follow = own.open(own.filePath);
    expect(await follow()).toBeUndefined();
    expect(own.seen).toEqual(Array(2).fill(['a', { name: 'a', generation: 1 }]));
    // A damaged file is as good as none.
    writeFileSync(own.statePath, '{"name":"a","policy":{"pfs":3}}');
    const unknown = own.open(own.filePath)();
    await vi.waitFor(() => expect(own.clock.sleeping()).toContain(2_000));
    own.clock.advance(2_000);
    await expect(unknown).rejects.toMatchObject({ code: 'policy-unread', retriable: true });
    expect(own.seen).toHaveLength(2);
    expect(own.logger.messages('warn')).toEqual(['cannot read the inventory policy that an earlier start has saved']);
    away[Symbol.dispose]();
    await until(follow, () => expect(own.seen.at(-1)).toEqual(['a', { name: 'a', generation: 2 }]));
  });

  it('uses the policy file if the CustomResourceDefinition is missing, but not if it lacks permission to read objects', async ({
    own,
  }) => {
    own.writeFile();
    {
      using _ = own.api.failNext(/networkdevicepolicies/, 404, { times: 9 });
      expect(await own.open(own.filePath)()).toBeUndefined();
      expect(own.seen).toEqual([['of-file', { source: own.filePath }]]);
      expect(existsSync(own.statePath)).toBe(true);
    }
    using _ = own.api.failNext(/networkdevicepolicies/, 403, { times: 9 });
    const follow = own.open(own.filePath);
    // It is known that no object selected the node.
    await until(follow, (fault) => expect(fault).toMatchObject({ code: 'policy-unread', retriable: false }));
    writeFileSync(own.statePath, '');
    await expect(own.open(own.filePath)()).rejects.toMatchObject({ code: 'policy-unread', retriable: false });
    expect(own.seen).toHaveLength(2);
  });

  describe.each(['terminating', 'missing'] as const)('when the CustomResourceDefinition is %s', (state) => {
    const kept = expect.objectContaining({
      code: 'policy-unread',
      message: 'NetworkDevicePolicy a was deleted with its CustomResourceDefinition, and stays in force',
    });

    it('keeps the deleted object in force, even if only one answer has shown this', async ({ own }) => {
      own.writeFile();
      own.api.create(policyOf('a'));
      const follow = own.open(own.filePath);
      await follow();
      own.api.delete(kind, 'a');
      await passLook(own, follow);
      own.api.endDefinitions(state, plural);
      await passLook(own, follow);
      own.api.restoreDefinitions(plural);
      await until(follow, (fault) => expect(fault).toEqual(kept));
      for (let second = 0; second < 60; second++) {
        own.clock.advance(1_000);
        expect(await follow()).toEqual(kept);
      }
      expect(own.seen).toEqual([['a', { name: 'a', generation: 1 }]]);
    });

    it('keeps it over a restart, until an object selects the node or one of its name selects others', async () => {
      for (const restored of [policyOf('b'), policyOf('a', { matchLabels: { rack: 'b' } })]) {
        await using own = await startBench();
        own.writeFile();
        own.api.create(policyOf('a'));
        const before = own.open(own.filePath);
        await before();
        own.api.endDefinitions(state, plural);
        own.api.delete(kind, 'a');
        await passLook(own, before);
        await vi.waitFor(() => expect(readFileSync(own.statePath, 'utf8')).toContain('"isOrphaned":true'));
        own.api.restoreDefinitions(plural);
        own.api.create(policyOf('other', { matchLabels: { rack: 'c' } }));
        const follow = own.open(own.filePath);
        await until(follow, (fault) => expect(fault).toEqual(kept));
        own.api.create(restored);
        await until(follow, (fault) => expect(fault).toBeUndefined());
        const { name } = restored.metadata;
        expect(own.seen.at(-1)).toEqual(
          name === 'b' ? ['b', { name, generation: 1 }] : ['of-file', { source: own.filePath }],
        );
      }
    });
  });

  it('forgets that the CustomResourceDefinition was missing once it sees the object in force again', async ({
    own,
  }) => {
    own.api.create(policyOf('a'));
    const follow = own.open();
    await follow();
    {
      using _ = own.api.failNext(/networkdevicepolicies/, 404, { times: 2 });
      const refused = own.open();
      await until(refused, (fault) => expect(fault).toMatchObject({ code: 'policy-unread' }));
      expect(readFileSync(own.statePath, 'utf8')).not.toContain('isOrphaned');
      await vi.waitFor(() => expect(own.clock.sleeping()).toContain(1_000));
      own.clock.advance(1_000);
      await until(refused, () => expect(readFileSync(own.statePath, 'utf8')).toContain('"isOrphaned":true'));
    }
    const again = own.open();
    await until(again, () => expect(readFileSync(own.statePath, 'utf8')).not.toContain('isOrphaned'));
    own.api.delete(kind, 'a');
    await confirmDeletion(own, again);
    await until(again, () => expect(own.seen.at(-1)).toEqual([undefined, undefined]));
  });

  it('withdraws a deleted policy although the API server once answered 404 before the deletion counted', async ({
    own,
  }) => {
    own.api.create(policyOf('a'));
    const follow = own.open();
    await follow();
    own.api.delete(kind, 'a');
    await passLook(own, follow);
    const pass = async () => {
      own.clock.advance(500);
      return await follow();
    };
    // The watch, and then one list.
    using _ = own.api.failNext(/networkdevicepolicies/, 404, { times: 2 });
    own.api.endWatches();
    await until(pass, (fault) => expect(fault).toMatchObject({ code: 'policy-unread' }));
    await until(pass, () => expect(own.seen.at(-1)).toEqual([undefined, undefined]));
  });

  it('keeps the object in force if the CustomResourceDefinition is removed', async ({ own }) => {
    own.api.create(policyOf('a'));
    await own.open()();
    using _ = own.api.failNext(/networkdevicepolicies/, 404, { times: 9 });
    await until(own.open(), (fault) => expect(fault).toMatchObject({ code: 'policy-unread' }));
    expect(own.seen.at(-1)).toEqual(['a', { name: 'a', generation: 1 }]);
  });
});
