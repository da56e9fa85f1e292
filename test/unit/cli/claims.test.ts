import { symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, expect, it } from 'vitest';
import { formatClaims, viewClaims } from '../../../src/cli/claims.ts';
import type { StoredClaim } from '../../../src/driver/model/index.ts';
import { Store } from '../../../src/driver/state/index.ts';
import type { DeviceMetadata } from '../../../src/framework/metadata/index.ts';
import { openStored, openStoredByDriver } from '../../../src/instance/stored-claims.ts';
import type { Link } from '../../../src/node/netlink/index.ts';
import { buildLink } from '../../doubles/links.ts';
import { storedAttachment, storedClaim, storedDevice } from '../../doubles/stored-claims.ts';
import { tempDir } from '../../doubles/temp-dir.ts';
import { plainTerminal } from './plain-terminal.ts';

const host = { name: 'ens1v1', mtuBytes: 1500, up: false };
const pod = { podUid: 'p-1', podNamespace: 'apps', podName: 'web-0' };
const attachment = storedAttachment({ ...pod, sandboxId: 's-1', netnsPath: '/nowhere/cni-1', host });

function claim(name: string, pciAddress: string, more: Partial<StoredClaim['devices'][number]> = {}): StoredClaim {
  const device = storedDevice({ pciAddress, name: pciAddress.replaceAll(/[:.]/g, '-') });
  return storedClaim({
    identity: { namespace: 'apps', name, uid: `uid-${name}` },
    podUids: ['p-1'],
    devices: [{ ...device, ...more } as StoredClaim['devices'][number]],
  });
}

const link = (name: string, parentDevice: string) => buildLink({ name, parentDevice });

/** What the first start of a driver leaves at the path of its store if it ends before the tables exist. */
const interruptedStores = [
  (path: string) => writeFileSync(path, ''),
  writeHeader,
  (path: string) => {
    writeHeader(path);
    writeFileSync(`${path}-journal`, rollbackJournal);
  },
];

function writeHeader(path: string): void {
  const database = new DatabaseSync(path);
  database.exec('PRAGMA journal_mode = WAL');
  database.close();
}

/** Journal of the transaction that writes the header: no pages to restore, sectors of 512 bytes, pages of 4096 bytes. */
const rollbackJournal = Buffer.alloc(512);
rollbackJournal.set(Buffer.from('d9d505f920a163d7', 'hex'));
rollbackJournal.writeUInt32BE(512, 20);
rollbackJournal.writeUInt32BE(4096, 24);

describe('openStored', () => {
  const claimsIn = (stateDir: string) => {
    using stored = openStored({ stateDir, dataDir: stateDir });
    return stored.claims;
  };

  it('reads the store while the driver is running', () => {
    using dir = tempDir();
    const path = join(dir.path, 'state.db');
    expect(claimsIn(dir.path)).toEqual([]);
    using store = new Store(path);
    const claims = [claim('a', '0000:3b:02.0'), claim('b', '0000:3b:02.1', { attachment }), claim('c', '0000:3b:02.2')];
    for (const each of claims) store.putClaim(each);
    store.putClaim({ ...claim('d', '0'), devices: [], state: 'unpreparing' });
    expect(claimsIn(dir.path)).toEqual(store.claims());
    expect(claimsIn(dir.path)).toHaveLength(4);
    // No lock stays behind.
    store.deleteClaim('uid-a');
    expect(claimsIn(dir.path).map(({ identity }) => identity.name)).toEqual(['b', 'c', 'd']);
  });

  it('distinguishes a node without claims from a directory without a store', () => {
    using dir = tempDir();
    const missing = `no driver has stored its state in ${dir.path}`;
    const dirs = { stateDir: dir.path, dataDir: dir.path };
    expect(() => openStoredByDriver(dirs)).toThrow(
      expect.objectContaining({ code: 'state-missing', message: missing }),
    );
    new Store(join(dir.path, 'state.db'))[Symbol.dispose]();
    using stored = openStoredByDriver(dirs);
    expect(stored.claims).toEqual([]);
  });

  it('treats a store whose creation was interrupted as missing', () => {
    for (const leftover of interruptedStores) {
      using dir = tempDir();
      leftover(join(dir.path, 'state.db'));
      const dirs = { stateDir: dir.path, dataDir: dir.path };
      {
        using stored = openStored(dirs);
        expect(stored).toMatchObject({ claims: [], unrestored: [] });
        expect(stored.records.names()).toEqual([]);
      }
      expect(() => openStoredByDriver(dirs)).toThrow(expect.objectContaining({ code: 'state-missing' }));
      using store = new Store(join(dir.path, 'state.db'));
      store.putClaim(claim('a', '0000:3b:02.0'));
      expect(claimsIn(dir.path)).toHaveLength(1);
    }
  });

  it('reports a store without read permission as unreadable, not as missing', () => {
    using dir = tempDir();
    // Refused to root, too.
    symlinkSync('loop', join(dir.path, 'loop'));
    expect(() => claimsIn(join(dir.path, 'loop'))).toThrow(/state store .*loop\/state\.db cannot be used/);
  });

  it('reports a file that is not a store', () => {
    using dir = tempDir();
    const path = join(dir.path, 'state.db');
    new Store(path)[Symbol.dispose]();
    expect(claimsIn(dir.path)).toEqual([]);
    writeFileSync(path, 'no database at all');
    expect(() => claimsIn(dir.path)).toThrow(/state store .* cannot be used/);
  });
});

describe('viewClaims', () => {
  const view = (claims: StoredClaim[], links: Link[], generation = 3, content: DeviceMetadata[] = []) =>
    viewClaims({
      claims,
      host: { links: async () => links, link: () => expect.unreachable() },
      inspect: async ({ name }) => ({
        claim: { namespace: 'apps', name, uid: `uid-${name}` },
        requests: [{ name: 'vf', base: 'vf', generation, devices: [], content }],
        files: [],
      }),
    });

  it('finds VFs on the host, and marks VFs that it cannot find', async () => {
    const claims = [claim('a', '0000:3b:02.0'), claim('b', '0000:3b:02.1', { attachment }), claim('c', '0000:3b:02.2')];
    const views = await view(claims, [link('ens1v0', '0000:3b:02.0')]);
    expect(views.map(({ devices }) => devices[0]?.place)).toEqual([
      { in: 'host', interfaceName: 'ens1v0' },
      { in: 'nowhere', reason: expect.stringContaining('/nowhere/cni-1') },
      { in: 'nowhere', reason: 'its interface is not on the host' },
    ]);
  });

  it('finds a VF in user space by the pod that its claim is for', async () => {
    const { host: _host, ...place } = attachment;
    const device = {
      config: { driver: 'vfio-pci' as const },
      access: { driver: 'vfio-pci', vfio: { device: '', iommuGroup: '40' }, nodes: [] },
    };
    const [before, after] = await view(
      [claim('a', '0000:3b:02.0', device), claim('b', '0000:3b:02.1', { ...device, attachment: place })],
      [],
    );
    expect(before?.devices[0]?.place).toEqual({ in: 'user-space' });
    expect(after?.devices[0]?.place).toEqual({ in: 'user-space', sandboxId: 's-1', pod: 'apps/web-0' });
  });

  it('prints a table', async () => {
    const networkData = { interfaceName: 'net1', ips: ['192.0.2.1/24', '2001:db8::1/64'] };
    const views = await view([claim('a', '0000:3b:02.0', { attachment })], [link('ens1v0', '0000:3b:02.0')], 0, [
      { driver: 'd', pool: 'node-1', name: '0000-3b-02-0', networkData },
    ]);
    expect(formatClaims(plainTerminal, views)).toBe(
      [
        'CLAIM   STATE     REQUEST  DEVICE        WHERE  INTERFACE  ADDRESSES                    GENERATION',
        'apps/a  prepared  vf       0000:3b:02.0  host   ens1v0     192.0.2.1/24 2001:db8::1/64  not written yet',
        '',
      ].join('\n'),
    );
    expect(formatClaims(plainTerminal, [])).toBe('no claims are prepared\n');
  });
});
