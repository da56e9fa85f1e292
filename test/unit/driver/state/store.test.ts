import { existsSync, openSync, readFileSync, statSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { it as base, describe, expect } from 'vitest';
import type { StoredDevice } from '../../../../src/driver/model/index.ts';
import { Store } from '../../../../src/driver/state/index.ts';
import { formatDeviceKey } from '../../../../src/framework/metadata/index.ts';
import { storedClaim, storedDevice } from '../../../doubles/stored-claims.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';

const identity = { uid: 'u', namespace: 'n', name: 'c' };
const device = storedDevice({ pciAddress: '0000:00:00.1', pool: 'p' });

const attachment = { podNamespace: 'default', podName: 'app', podUid: 'p', sandboxId: 's', netnsPath: '/run/netns/x' };

const it = base.extend<{ path: string }>({
  path: async ({ task: _ }, use) => {
    using dir = tempDir();
    await use(join(dir.path, 'state.db'));
  },
});

/** What another instance writes is seen by code that runs later. */
const otherTurn = Promise.resolve();

describe('Store', () => {
  it('gives a device to only one claim, even across processes, and names the holder', async ({ path }) => {
    using first = new Store(path);
    using second = new Store(path);
    first.putClaim(storedClaim({ identity, state: 'preparing', devices: [device] }));
    const other = { uid: 'v', namespace: 'n', name: 'd' };
    const put = () => second.putClaim(storedClaim({ identity: other, state: 'preparing', devices: [device] }));
    expect(put).toThrow('device dev-1 (0000:00:00.1) cannot be prepared for claim n/d: it is prepared for claim n/c');
    expect(second.claim('v')).toBeUndefined();
    first.putClaim(storedClaim({ identity, devices: [device] }));
    first.deleteClaim('u');
    put();
    await otherTurn;
    expect(first.holderOf(device.pciAddress)?.identity).toEqual(other);
  });

  it('changes the state of a claim, and no other field', ({ path }) => {
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

  it('commits several changes together, and undoes a change that fails', async ({ path }) => {
    using store = new Store(path);
    using other = new Store(path);
    const put = (uid: string, index: number) => {
      const devices = [storedDevice({ pciAddress: `0000:00:00.${index}`, name: `dev-${index}` })];
      store.putClaim(storedClaim({ identity: { ...identity, uid }, devices }));
    };
    const uids = () => other.claims().map((claim) => claim.identity.uid);
    const failure = new Error('of the task');
    const broken = () =>
      store.together(() => {
        put('u', 1);
        throw failure;
      });
    expect(broken).toThrow(failure);
    expect(uids()).toEqual([]);
    store.together(() => {
      put('u', 1);
      expect(uids()).toEqual([]);
      expect(() => put('v', 1)).toThrow(/it is prepared for claim/);
      put('w', 2);
    });
    await otherTurn;
    expect(uids()).toEqual(['u', 'w']);
  });

  it('finds claims by pod at once, and soon also claims that another process has stored', async ({ path }) => {
    using store = new Store(path);
    expect(store.claimsOfPod('p')).toEqual([]);
    store.putClaim(storedClaim({ identity, podUids: ['p', 'q'] }));
    expect(store.claimsOfPod('p')).toHaveLength(1);
    store.deleteClaim('u');
    expect(store.claimsOfPod('q')).toEqual([]);
    using other = new Store(path);
    other.putClaim(storedClaim({ identity, podUids: ['r'] }));
    // Long before it would be asked again anyway.
    await expect.poll(() => store.claimsOfPod('r'), { timeout: 5_000 }).toHaveLength(1);
  });

  it('rejects a file that is not a store, and names it', ({ path }) => {
    writeFileSync(path, 'this is no database, but it is long enough to be taken for one'.repeat(100));
    expect(() => new Store(path)).toThrow(`state store ${path} cannot be used`);
  });

  it('rejects the schema of a newer version', ({ path }) => {
    new Store(path)[Symbol.dispose]();
    const database = new DatabaseSync(path);
    database.exec('PRAGMA user_version = 99');
    database.close();
    expect(() => new Store(path)).toThrow(/has schema 99, this version knows 1/);
  });

  it('rejects a damaged file, and names the remedy', ({ path }) => {
    {
      using store = new Store(path);
      store.putClaim(storedClaim({ identity, devices: [device] }));
    }
    const file = openSync(path, 'r+');
    // The first page stays as it is, so that the file looks good.
    const { size } = statSync(path);
    writeSync(file, Buffer.alloc(size - 4_096, 0xff), 0, size - 4_096, 4_096);
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

  it('fails on an invalid row instead of skipping the row', ({ path }) => {
    using store = new Store(path);
    store.putClaim(storedClaim({ identity, devices: [device] }));
    const other = new DatabaseSync(path);
    other.exec("UPDATE devices SET data = '{'");
    other.close();
    expect(() => store.claims()).toThrow(expect.objectContaining({ code: 'store-unusable', hint: expect.any(String) }));
  });

  it('can be read by tools without being changed, even if the driver has another version', ({ path }) => {
    expect(() => new Store(path, { readOnly: true })).toThrow(
      expect.objectContaining({ code: 'store-unusable', hint: expect.stringContaining('as root') }),
    );
    expect(existsSync(path)).toBe(false);
    {
      using store = new Store(path);
      store.putClaim(storedClaim({ identity, devices: [device] }));
    }
    const before = readFileSync(path);
    {
      using tool = new Store(path, { readOnly: true });
      expect(tool.claims()).toMatchObject([{ identity, devices: [device] }]);
      expect(() => tool.deleteClaim('u')).toThrow(`state store ${path} cannot be used`);
    }
    expect(readFileSync(path)).toEqual(before);
    const newer = new DatabaseSync(path);
    newer.exec('PRAGMA user_version = 99');
    newer.close();
    expect(() => new Store(path, { readOnly: true })).toThrow(/has schema 99, this version knows 1/);
  });

  it('changes attachments only for the claim that holds the devices', ({ path }) => {
    using store = new Store(path);
    const other = { ...device, pciAddress: '0000:00:00.2', name: 'dev-2' };
    store.putClaim(storedClaim({ identity, devices: [device, other] }));
    const both = new Map([device, other].map((each) => [formatDeviceKey(each), attachment]));
    store.setAttachments('another claim', both);
    expect(store.claim('u')?.devices).toEqual([device, other]);
    store.setAttachments('u', both);
    expect(store.claim('u')?.devices.map((each) => each.attachment)).toEqual([attachment, attachment]);
    store.setAttachments('u', new Map([[formatDeviceKey(other), undefined]]));
    expect(store.claim('u')?.devices).toEqual([{ ...device, attachment }, other]);
  });

  it('identifies devices by driver, pool, name and share', ({ path }) => {
    const [share, pool, name] = ['0c3be3a3-4b2a-4b39-9a0c-6f2f4f2c0001', 'rack/node-1', '0000-00-00-1'];
    const shared = storedDevice({ driver: 'd.example', pool, name, shareId: share, attachment });
    {
      using store = new Store(path);
      store.putClaim(storedClaim({ identity, devices: [shared] }));
      store.setAttachments('u', new Map([[`d.example/rack/node-1/0000-00-00-1@${share}`, undefined]]));
    }
    using store = new Store(path);
    const { attachment: _attachment, ...detached } = shared;
    expect(store.claim('u')?.devices).toEqual([detached]);
    store.deleteClaim('u', [{ device: detached, reason: 'its card hangs' }]);
    expect(store.unrestored().map(({ device }) => device)).toEqual([detached]);
    store.deleteUnrestored(detached);
    expect(store.unrestored()).toEqual([]);
  });

  it('rejects a claim with two shares of one VF, since a VF has one interface', ({ path }) => {
    using store = new Store(path);
    const devices = ['a', 'b'].map((shareId) => storedDevice({ shareId }));
    expect(() => store.putClaim(storedClaim({ identity, devices }))).toThrow(
      'device dev-1 (0000:3b:02.1) cannot be prepared for claim n/c: the claim has it allocated twice',
    );
    expect(store.claims()).toEqual([]);
  });

  it('keeps the stored attachment of a VF when the claim is stored again with older data', ({ path }) => {
    using store = new Store(path);
    const put = (each: StoredDevice) => store.putClaim(storedClaim({ identity, devices: [each] }));
    put(device);
    store.setAttachments('u', new Map([[formatDeviceKey(device), attachment]]));
    put(device);
    expect(store.claim('u')?.devices).toEqual([{ ...device, attachment }]);
    store.setAttachments('u', new Map([[formatDeviceKey(device), undefined]]));
    put({ ...device, attachment });
    expect(store.claim('u')?.devices).toEqual([device]);
  });

  it('withholds unrestored VFs from every claim until they are restored', ({ path }) => {
    using store = new Store(path);
    store.putClaim(storedClaim({ identity, state: 'unpreparing', devices: [{ ...device, attachment }] }));
    store.deleteClaim('u', [{ device: { ...device, attachment }, reason: 'the name is taken' }]);
    expect([store.claims(), store.unrestored()]).toEqual([
      [],
      [{ device: { ...device, attachment }, reason: 'the name is taken' }],
    ]);
    const other = { uid: 'v', namespace: 'n', name: 'd' };
    const next = storedClaim({ identity: other, state: 'preparing', devices: [device] });
    expect(() => store.putClaim(next)).toThrow(
      'device dev-1 (0000:00:00.1) cannot be prepared for claim n/d: restoring it after its last claim failed: the name is taken',
    );
    store.deleteUnrestored(device);
    store.putClaim(next);
  });

  it('notices changes of unrestored VFs by this or another driver instance', async ({ path }) => {
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
      store.deleteUnrestored(device);
      expect(reasons()).toEqual([]);
      throw new Error('stop');
    };
    expect(() => store.together(undone)).toThrow('stop');
    expect(reasons()).toEqual(['y']);
    other.deleteUnrestored(device);
    await otherTurn;
    expect(reasons()).toEqual([]);
  });

  it('forgets unrestored VFs after a reboot', ({ path }) => {
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
