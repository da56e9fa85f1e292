import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Driver, Store, type StoredDevice, type VfControl } from '../../../src/driver/index.ts';
import { KeyedMutex } from '../../../src/keyed-mutex.ts';
import type { AllocatedClaim } from '../../../src/kubeletplugin/index.ts';
import { CdiSpecs } from '../../../src/metadata/index.ts';
import type { VfAddress, VfBefore, VfWanted } from '../../../src/sriov/index.ts';
import { buildClaim, buildPod, type ClaimOptions, testDriver } from '../../doubles/objects.ts';
import { tempDir } from '../../doubles/temp-dir.ts';

function allocated(name: string, devices: string[], more: Partial<ClaimOptions> = {}): AllocatedClaim {
  const pod = buildPod(`${name}-pod`);
  const object = buildClaim(name, { requests: [{ name: 'vf', devices }], pods: [pod], ...more });
  const { namespace, uid } = object.metadata;
  const results = object.status?.allocation?.devices?.results ?? [];
  return { identity: { namespace, name, uid }, podClaimName: undefined, results, podUids: [pod.metadata.uid], object };
}

/** VFs that are what they were told, and what was done to them. */
class RecordingControl implements VfControl {
  readonly calls: string[] = [];
  applyError: Error | undefined;

  async read({ pciAddress }: VfAddress): Promise<VfBefore> {
    this.calls.push(`read ${pciAddress}`);
    return { driver: 'igbvf', vf: { trust: false } };
  }
  async apply({ pciAddress }: VfAddress, wanted: VfWanted): Promise<void> {
    this.calls.push(`apply ${pciAddress} ${JSON.stringify(wanted)}`);
    if (this.applyError !== undefined) throw this.applyError;
  }
  async restore({ pciAddress }: VfAddress, before: VfBefore): Promise<void> {
    this.calls.push(`restore ${pciAddress} ${JSON.stringify(before)}`);
  }
  async iommuGroup(): Promise<string> {
    return '42';
  }
}

const fromClass = (fields: object) => ({
  config: [
    { source: 'FromClass' as const, parameters: { apiVersion: 'netdra.dev/v1alpha1', kind: 'VFConfig', ...fields } },
  ],
});

describe('Driver', () => {
  let dir: ReturnType<typeof tempDir>;
  let store: Store;
  let driver: Driver;
  let released: string[];
  let releaseError: Error | undefined;
  let control: RecordingControl;

  beforeEach(() => {
    dir = tempDir();
    store = new Store(join(dir.path, 'state/state.db'));
    released = [];
    control = new RecordingControl();
    releaseError = undefined;
    driver = new Driver({
      driver: testDriver,
      store,
      inventory: {
        find: (_pool, name) =>
          name.startsWith('dev-')
            ? {
                pciAddress: `0000:00:00.${name.slice(4)}`,
                pfAddress: '0000:01:00.0',
                vfIndex: Number(name.slice(4)),
                simulated: false,
              }
            : undefined,
      },
      control,
      deviceSpecs: new CdiSpecs({ dir: join(dir.path, 'cdi'), driver: testDriver, class: 'vfio' }),
      openClaimFields: [],
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
      host: { name: 'v', mtuBytes: 1, up: true },
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

describe('Driver, with VFs that are changed from outside', () => {
  let dir: ReturnType<typeof tempDir>;
  let store: Store;
  let control: RecordingControl;
  let driver: Driver;

  beforeEach(() => {
    dir = tempDir();
    store = new Store(join(dir.path, 'state.db'));
    control = new RecordingControl();
    driver = new Driver({
      driver: testDriver,
      store,
      inventory: {
        find: () => ({ pciAddress: '0000:00:00.1', pfAddress: '0000:01:00.0', vfIndex: 1, simulated: false }),
      },
      carrier: { release: async () => void control.calls.push('release') },
      control,
      deviceSpecs: new CdiSpecs({ dir: join(dir.path, 'cdi'), driver: testDriver, class: 'vfio' }),
      openClaimFields: [],
      claimMutex: new KeyedMutex(),
    });
  });
  afterEach(() => {
    store[Symbol.dispose]();
    dir[Symbol.dispose]();
  });

  it('remembers what the VF was before it changes it, and restores that at the end', async () => {
    const claim = allocated(
      'c',
      ['dev-1'],
      fromClass({ vf: { trust: true, vlan: 7, qos: 3 }, macAddress: '02:00:00:00:00:01' }),
    );
    let stateAtApply: unknown;
    const apply = control.apply.bind(control);
    control.apply = async (address, wanted) => {
      stateAtApply = store.claim(claim.identity.uid);
      await apply(address, wanted);
    };
    expect((await driver.prepareResourceClaims([claim])).get(claim.identity.uid)).toEqual({ devices: [] });
    expect(stateAtApply).toMatchObject({
      state: 'preparing',
      devices: [{ before: { driver: 'igbvf', vf: { trust: false } } }],
    });
    await driver.unprepareResourceClaims([claim.identity]);
    expect(control.calls).toEqual([
      'read 0000:00:00.1',
      'apply 0000:00:00.1 {"vf":{"hardwareAddress":"02:00:00:00:00:01","vlan":{"id":7,"priority":3},"trust":true}}',
      'release',
      'restore 0000:00:00.1 {"driver":"igbvf","vf":{"trust":false}}',
    ]);
  });

  it('keeps what it read first when a prepare is repeated, after a failure too', async () => {
    const claim = allocated('c', ['dev-1'], fromClass({ vf: { trust: true } }));
    control.applyError = new Error('card says no');
    expect((await driver.prepareResourceClaims([claim])).get(claim.identity.uid)).toEqual({
      error: control.applyError,
    });
    control.applyError = undefined;
    await driver.prepareResourceClaims([claim]);
    await driver.prepareResourceClaims([claim]);
    const count = (call: string) => control.calls.filter((each) => each.startsWith(call)).length;
    // Once prepared, nothing is done again: the VF may be in its pod.
    expect([count('read'), count('apply')]).toEqual([1, 2]);
  });

  it('gives a container of a DPDK claim the vfio devices, and defers the metadata', async () => {
    const claim = allocated('c', ['dev-1'], fromClass({ driver: 'vfio-pci' }));
    const { uid } = claim.identity;
    const id = `${testDriver}/vfio=${uid}_dev-1`;
    expect((await driver.prepareResourceClaims([claim])).get(uid)).toEqual({
      devices: [
        { requests: ['vf'], poolName: 'node-1', deviceName: 'dev-1', cdiDeviceIds: [id], metadata: 'deferred' },
      ],
    });
    const file = join(dir.path, `cdi/${testDriver}_vfio_${uid}_dev-1.json`);
    expect(JSON.parse(readFileSync(file, 'utf8')).devices[0].containerEdits.deviceNodes).toEqual([
      { path: '/dev/vfio/vfio', permissions: 'rw' },
      { path: '/dev/vfio/42', permissions: 'rw' },
    ]);
    await driver.unprepareResourceClaims([claim.identity]);
    expect(existsSync(file)).toBe(false);
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
