import { copyFileSync, existsSync, openSync, readFileSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { fileURLToPath } from 'node:url';
import { it as base, describe, expect } from 'vitest';
import { Store, type StoredDevice } from '../../../../src/driver/state/index.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';

const identity = { uid: 'u', namespace: 'n', name: 'c' };
const device: StoredDevice = { pciAddress: '0000:00:00.1', pool: 'p', name: 'dev-1', request: 'vf', config: {} };

const attachment = { podUid: 'p', sandboxId: 's', netnsPath: '/run/netns/x' };

const schema1 = fileURLToPath(new URL('fixtures/state-schema-1.db', import.meta.url));

const it = base.extend<{ path: string }>({
  path: async ({ task: _ }, use) => {
    using dir = tempDir();
    await use(join(dir.path, 'state.db'));
  },
});

/** What another instance writes is seen by code that runs later. */
const otherTurn = Promise.resolve();

describe('Store', () => {
  it('gives a device to one claim only, also when two processes ask, and says who has it', async ({ path }) => {
    using first = new Store(path);
    using second = new Store(path);
    first.putClaim({ identity, podUids: [], state: 'preparing', devices: [device] });
    const other = { uid: 'v', namespace: 'n', name: 'd' };
    const put = () => second.putClaim({ identity: other, podUids: [], state: 'preparing', devices: [device] });
    expect(put).toThrow('device dev-1 (0000:00:00.1) cannot be prepared for claim n/d: it is prepared for claim n/c');
    expect(second.claim('v')).toBeUndefined();
    first.putClaim({ identity, podUids: [], state: 'prepared', devices: [device] });
    first.deleteClaim('u');
    put();
    await otherTurn;
    expect(first.holderOf(device.pciAddress)?.identity).toEqual(other);
  });

  it('changes what a claim stands at, and nothing else of it', ({ path }) => {
    using store = new Store(path, { bootId: 'b' });
    const claim = {
      identity,
      podUids: ['p'],
      state: 'prepared' as const,
      allocation: 'a',
      devices: [{ ...device, attachment }],
    };
    store.putClaim(claim);
    store.setState(['u', 'never heard of'], 'unpreparing');
    expect(store.claims()).toEqual([{ ...claim, state: 'unpreparing' }]);
  });

  it('keeps all of several changes or none, and undoes one that fails by itself', async ({ path }) => {
    using store = new Store(path);
    using other = new Store(path);
    const put = (uid: string, pciAddress: string) =>
      store.putClaim({
        ...{ identity: { ...identity, uid }, podUids: [], state: 'prepared' as const },
        devices: [{ ...device, pciAddress }],
      });
    const uids = () => other.claims().map((claim) => claim.identity.uid);
    const failure = new Error('of the task');
    const broken = () =>
      store.together(() => {
        put('u', '0000:00:00.1');
        throw failure;
      });
    expect(broken).toThrow(failure);
    expect(uids()).toEqual([]);
    store.together(() => {
      put('u', '0000:00:00.1');
      expect(uids()).toEqual([]);
      expect(() => put('v', '0000:00:00.1')).toThrow(/it is prepared for claim/);
      put('w', '0000:00:00.2');
    });
    await otherTurn;
    expect(uids()).toEqual(['u', 'w']);
  });

  it('knows at once which pods it has claims of, and soon what another process has written', async ({ path }) => {
    using store = new Store(path);
    expect(store.claimsOfPod('p')).toEqual([]);
    store.putClaim({ identity, podUids: ['p', 'q'], state: 'prepared', devices: [] });
    expect(store.claimsOfPod('p')).toHaveLength(1);
    store.deleteClaim('u');
    expect(store.claimsOfPod('q')).toEqual([]);
    using other = new Store(path);
    other.putClaim({ identity, podUids: ['r'], state: 'prepared', devices: [] });
    // Long before it would be asked again anyway.
    await expect.poll(() => store.claimsOfPod('r'), { timeout: 5_000 }).toHaveLength(1);
  });

  it('refuses to start with a file that is no store, and says which', ({ path }) => {
    writeFileSync(path, 'this is no database, but it is long enough to be taken for one'.repeat(100));
    expect(() => new Store(path)).toThrow(`state store ${path} cannot be used`);
  });

  it('refuses the schema of a newer version', ({ path }) => {
    new Store(path)[Symbol.dispose]();
    const database = new DatabaseSync(path);
    database.exec('PRAGMA user_version = 99');
    database.close();
    expect(() => new Store(path)).toThrow(/has schema 99, this version knows 6/);
  });

  it('brings a store of schema 1 up to date, and loses nothing of it', ({ path }) => {
    copyFileSync(schema1, path);
    using store = new Store(path, { bootId: 'boot-1' });
    expect(store.claims().map(({ identity: { name }, state }) => [name, state])).toEqual([
      ['dpdk', 'unpreparing'],
      ['fast-net', 'prepared'],
    ]);
    const [device] = store.claimsOfPod('5a1c3a52-66c0-4c59-8f4d-8a4c1a5b2c33')[0]?.devices ?? [];
    expect(device).toMatchObject({
      pciAddress: '0000:3b:02.1',
      attachment: { sandboxId: 'c0ffee', host: { name: 'ens1f0v1' } },
    });
    // Stored beside the attachment then, which it outlived: it is read anew from the pod.
    expect([device, device?.attachment]).not.toContainEqual(
      expect.objectContaining({ networkData: expect.anything() }),
    );
    // Of this boot as far as anybody knows, and of an earlier one after the next.
    expect(store.claimsOfEarlierBoots()).toEqual([]);
    store[Symbol.dispose]();
    using later = new Store(path, { bootId: 'boot-2' });
    expect(later.claimsOfEarlierBoots()).toHaveLength(2);
  });

  it('can be written by the version before while the new one runs: a rolling update', ({ path }) => {
    using store = new Store(path, { bootId: 'boot-1' });
    const old = new DatabaseSync(path);
    old.exec("INSERT INTO claims (uid, namespace, name, pod_uids, state) VALUES ('u', 'n', 'c', '[]', 'prepared')");
    old.close();
    expect(store.claim('u')).toMatchObject({ identity, state: 'prepared' });
    expect(store.claimsOfEarlierBoots()).toEqual([]);
  });

  it('refuses a damaged file, and says what to do', ({ path }) => {
    copyFileSync(schema1, path);
    const file = openSync(path, 'r+');
    // Page 4 holds rows of devices: the start stays as it is, so that the file looks good.
    writeSync(file, Buffer.alloc(2_048, 0xff), 0, 2_048, 3 * 4_096);
    const damaged = readFileSync(path);
    expect(() => new Store(path)).toThrow(
      expect.objectContaining({
        code: 'store-unusable',
        retriable: false,
        hint: expect.stringMatching(/drain the node/),
      }),
    );
    expect(readFileSync(path)).toEqual(damaged);
  });

  it('refuses rows that it cannot have written, rather than to forget them', ({ path }) => {
    using store = new Store(path);
    store.putClaim({ identity, podUids: [], state: 'prepared', devices: [device] });
    const other = new DatabaseSync(path);
    other.exec("UPDATE devices SET data = '{'");
    other.close();
    expect(() => store.claims()).toThrow(expect.objectContaining({ code: 'store-unusable', hint: expect.any(String) }));
  });

  it('can be read without being changed: by tools, beside a driver of another version, too', ({ path }) => {
    expect(() => new Store(path, { readOnly: true })).toThrow(
      expect.objectContaining({ code: 'store-unusable', hint: expect.stringContaining('as root') }),
    );
    expect(existsSync(path)).toBe(false);
    copyFileSync(schema1, path);
    const before = readFileSync(path);
    {
      using old = new Store(path, { readOnly: true });
      expect(old.claims().map(({ identity: { name }, devices }) => [name, devices.length])).toEqual([
        ['dpdk', 1],
        ['fast-net', 1],
      ]);
      expect(() => old.deleteClaim('u')).toThrow(`state store ${path} cannot be used`);
    }
    expect(readFileSync(path)).toEqual(before);
    const newer = new DatabaseSync(path);
    newer.exec('PRAGMA user_version = 99');
    newer.close();
    expect(() => new Store(path, { readOnly: true })).toThrow(/has schema 99, this version knows 6/);
  });

  it('changes attachments of the claim that has the devices, and of no other', ({ path }) => {
    using store = new Store(path);
    const other = { ...device, pciAddress: '0000:00:00.2', name: 'dev-2' };
    store.putClaim({ identity, podUids: [], state: 'prepared', devices: [device, other] });
    const both = new Map([device, other].map(({ pciAddress }) => [pciAddress, attachment]));
    store.setAttachments('another claim', both);
    expect(store.claim('u')?.devices).toEqual([device, other]);
    store.setAttachments('u', both);
    expect(store.claim('u')?.devices.map((each) => each.attachment)).toEqual([attachment, attachment]);
    store.setAttachments('u', new Map([[other.pciAddress, undefined]]));
    expect(store.claim('u')?.devices).toEqual([{ ...device, attachment }, other]);
  });

  it('keeps where a VF is when its claim is put again, whatever the caller has read before', ({ path }) => {
    using store = new Store(path);
    const put = (each: StoredDevice) => store.putClaim({ identity, podUids: [], state: 'prepared', devices: [each] });
    put(device);
    store.setAttachments('u', new Map([[device.pciAddress, attachment]]));
    put(device);
    expect(store.claim('u')?.devices).toEqual([{ ...device, attachment }]);
    store.setAttachments('u', new Map([[device.pciAddress, undefined]]));
    put({ ...device, attachment });
    expect(store.claim('u')?.devices).toEqual([device]);
  });

  it('keeps VFs that could not be restored from every claim, until they are', ({ path }) => {
    using store = new Store(path);
    const claim = { identity, podUids: ['p'], state: 'unpreparing', devices: [{ ...device, attachment }] } as const;
    store.putClaim({ ...claim, podUids: ['p'], devices: [...claim.devices] });
    store.deleteClaim('u', [{ device: { ...device, attachment }, reason: 'the name is taken' }]);
    expect([store.claims(), store.unrestored()]).toEqual([
      [],
      [{ device: { ...device, attachment }, reason: 'the name is taken' }],
    ]);
    const next = { identity: { uid: 'v', namespace: 'n', name: 'd' }, podUids: [], devices: [device] };
    expect(() => store.putClaim({ ...next, state: 'preparing' })).toThrow(
      'device dev-1 (0000:00:00.1) cannot be prepared for claim n/d: it is not restored since its last claim: the name is taken',
    );
    store.deleteUnrestored(device.pciAddress);
    store.putClaim({ ...next, state: 'preparing' });
  });

  it('reads again what was not restored, after this instance or another one has changed it', async ({ path }) => {
    using store = new Store(path);
    using other = new Store(path);
    const reasons = () => store.unrestored().map(({ reason }) => reason);
    expect(reasons()).toEqual([]);
    other.putUnrestored({ device, reason: 'x' });
    await otherTurn;
    expect(reasons()).toEqual(['x']);
    store.putUnrestored({ device, reason: 'y' });
    expect(reasons()).toEqual(['y']);
    // Undone with its transaction.
    const undone = () => {
      store.deleteUnrestored(device.pciAddress);
      expect(reasons()).toEqual([]);
      throw new Error('stop');
    };
    expect(() => store.together(undone)).toThrow('stop');
    expect(reasons()).toEqual(['y']);
    other.deleteUnrestored(device.pciAddress);
    await otherTurn;
    expect(reasons()).toEqual([]);
  });

  it('forgets in another boot what was not restored', ({ path }) => {
    {
      using store = new Store(path, { bootId: 'boot-1' });
      store.putUnrestored({ device, reason: 'x' });
      store.forgetUnrestoredOfEarlierBoots();
      expect(store.unrestored()).toHaveLength(1);
    }
    using store = new Store(path, { bootId: 'boot-2' });
    store.forgetUnrestoredOfEarlierBoots();
    expect(store.unrestored()).toEqual([]);
  });
});
