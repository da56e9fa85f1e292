import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Driver, Store, type StoredDevice } from '../../../src/driver/index.ts';
import { KeyedMutex } from '../../../src/keyed-mutex.ts';
import type { AllocatedClaim } from '../../../src/kubeletplugin/index.ts';
import { buildClaim, buildPod, type ClaimOptions, testDriver } from '../../doubles/objects.ts';
import { tempDir } from '../../doubles/temp-dir.ts';

function allocated(name: string, devices: string[], more: Partial<ClaimOptions> = {}): AllocatedClaim {
  const pod = buildPod(`${name}-pod`);
  const object = buildClaim(name, { requests: [{ name: 'vf', devices }], pods: [pod], ...more });
  const { namespace, uid } = object.metadata;
  const results = object.status?.allocation?.devices?.results ?? [];
  return { identity: { namespace, name, uid }, podClaimName: undefined, results, podUids: [pod.metadata.uid], object };
}

describe('Driver', () => {
  let dir: ReturnType<typeof tempDir>;
  let store: Store;
  let driver: Driver;
  let released: string[];
  let releaseError: Error | undefined;

  beforeEach(() => {
    dir = tempDir();
    store = new Store(join(dir.path, 'state/state.db'));
    released = [];
    releaseError = undefined;
    driver = new Driver({
      driver: testDriver,
      store,
      inventory: {
        pciAddressOf: (_pool, name) => (name.startsWith('dev-') ? `0000:00:00.${name.slice(4)}` : undefined),
      },
      carrier: {
        async release({ name }) {
          if (releaseError !== undefined) throw releaseError;
          released.push(name);
        },
      },
      claimMutex: new KeyedMutex(),
    });
  });
  afterEach(() => {
    store[Symbol.dispose]();
    dir[Symbol.dispose]();
  });

  const prepare = async (claim: AllocatedClaim) =>
    (await driver.prepareResourceClaims([claim])).get(claim.identity.uid);

  it('gives an empty result and remembers pod, devices and config', async () => {
    const config = { apiVersion: 'netdra.dev/v1alpha1', kind: 'VFConfig', mtu: 1400 };
    const claim = allocated('c', ['dev-1', 'dev-2'], { config: [{ source: 'FromClaim', parameters: config }] });
    expect(await prepare(claim)).toEqual({ devices: [] });
    const [stored] = store.claimsOfPod(claim.podUids[0] ?? '');
    expect(stored).toMatchObject({ identity: claim.identity, state: 'prepared' });
    expect(stored?.devices).toMatchObject([
      { name: 'dev-1', pciAddress: '0000:00:00.1', request: 'vf', config: { mtu: 1400 } },
      { name: 'dev-2', pciAddress: '0000:00:00.2' },
    ]);
    expect(store.claimsOfPod('another pod')).toEqual([]);
  });

  it('refuses a device that is prepared for another claim, and names both', async () => {
    await prepare(allocated('first', ['dev-1']));
    const result = await prepare(allocated('second', ['dev-1']));
    expect(result).toMatchObject({
      error: expect.objectContaining({
        message:
          'device dev-1 (0000:00:00.1) cannot be prepared for claim default/second: it is prepared for claim default/first',
      }),
    });
  });

  it('refuses the second of two claims for one device in one call', async () => {
    const [a, b] = [allocated('a', ['dev-1']), allocated('b', ['dev-1'])];
    const results = await driver.prepareResourceClaims([a, b]);
    expect(results.get(a.identity.uid)).toEqual({ devices: [] });
    expect(results.get(b.identity.uid)).toMatchObject({ error: expect.objectContaining({ code: 'device-in-use' }) });
  });

  it('says when a device is not on this node', async () => {
    expect(await prepare(allocated('c', ['gone']))).toMatchObject({
      error: expect.objectContaining({ message: 'claim default/c: this node has no device node-1/gone' }),
    });
  });

  it('keeps where a VF is when its claim is prepared again', async () => {
    const claim = allocated('c', ['dev-1']);
    await prepare(claim);
    const [device] = store.claim(claim.identity.uid)?.devices ?? [];
    const attachment = {
      podUid: 'p',
      sandboxId: 's',
      netnsPath: '/n',
      host: { name: 'v', hardwareAddress: '', mtuBytes: 1 },
    };
    const networkData = { interfaceName: 'net1' };
    store.putDevice({ ...(device as StoredDevice), attachment, networkData });
    await prepare(claim);
    expect(store.claim(claim.identity.uid)?.devices).toMatchObject([{ attachment, networkData }]);
  });

  it('gives devices back at unprepare, once, and takes unknown claims as done', async () => {
    const claim = allocated('c', ['dev-1', 'dev-2']);
    await prepare(claim);
    for (let round = 0; round < 2; round++) {
      expect((await driver.unprepareResourceClaims([claim.identity])).get(claim.identity.uid)).toBeUndefined();
    }
    expect(released).toEqual(['dev-1', 'dev-2']);
    expect(store.claims()).toEqual([]);
    expect(await prepare(allocated('next', ['dev-1']))).toEqual({ devices: [] });
  });

  it('forgets nothing when a device cannot be given back', async () => {
    const claim = allocated('c', ['dev-1']);
    await prepare(claim);
    releaseError = new Error('stuck');
    expect((await driver.unprepareResourceClaims([claim.identity])).get(claim.identity.uid)).toBe(releaseError);
    expect(store.claim(claim.identity.uid)).toMatchObject({ state: 'unpreparing' });
    releaseError = undefined;
    expect((await driver.unprepareResourceClaims([claim.identity])).get(claim.identity.uid)).toBeUndefined();
    expect(store.claims()).toEqual([]);
  });
});

describe('Store', () => {
  it('is there after a restart, for two processes at once', () => {
    using dir = tempDir();
    const path = join(dir.path, 'state.db');
    using first = new Store(path);
    using second = new Store(path);
    const identity = { uid: 'u', namespace: 'n', name: 'c' };
    first.putClaim({ identity, podUids: ['p'], state: 'prepared', devices: [] });
    expect(second.claim('u')).toEqual({ identity, podUids: ['p'], state: 'prepared', devices: [] });
  });

  it('refuses to start with a file that is no store, and says which', () => {
    using dir = tempDir();
    const path = join(dir.path, 'state.db');
    writeFileSync(path, 'this is no database, but it is long enough to be taken for one'.repeat(100));
    expect(() => new Store(path)).toThrow(`state store ${path} cannot be used`);
  });

  it('refuses the schema of a newer version', () => {
    using dir = tempDir();
    const path = join(dir.path, 'state.db');
    new Store(path)[Symbol.dispose]();
    const database = new DatabaseSync(path);
    database.exec('PRAGMA user_version = 99');
    database.close();
    expect(() => new Store(path)).toThrow(/has schema 99, this version knows 1/);
  });
});
