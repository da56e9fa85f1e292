import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, expect, it } from 'vitest';
import { Store, type StoredDevice } from '../../../src/driver/index.ts';
import { tempDir } from '../../doubles/temp-dir.ts';

const identity = { uid: 'u', namespace: 'n', name: 'c' };
const device: StoredDevice = { pciAddress: '0000:00:00.1', pool: 'p', name: 'dev-1', request: 'vf', config: {} };

describe('Store', () => {
  it('is there after a restart, for two processes at once', () => {
    using dir = tempDir();
    const path = join(dir.path, 'state.db');
    using first = new Store(path);
    using second = new Store(path);
    first.putClaim({ identity, podUids: ['p'], state: 'prepared', devices: [] });
    expect(second.claim('u')).toEqual({ identity, podUids: ['p'], state: 'prepared', devices: [] });
  });

  it('gives a device to one claim only, also when two processes ask, and says who has it', () => {
    using dir = tempDir();
    const path = join(dir.path, 'state.db');
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
    expect(first.holderOf(device.pciAddress)?.identity).toEqual(other);
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
