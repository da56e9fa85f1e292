import { mkdirSync, readdirSync, readFileSync, renameSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type CacheEntry, CniCache } from '../../../../src/node/cni/cache.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';

let parent: ReturnType<typeof tempDir>;
let dir: string;
let cache: CniCache;
beforeEach(() => {
  parent = tempDir();
  dir = join(parent.path, 'state', 'cni');
  cache = new CniCache(dir);
});
afterEach(() => parent[Symbol.dispose]());

function entryOf({
  kind = 'chain' as CacheEntry['kind'],
  name = 'fast',
  containerId = 'c1',
  ifName = 'net1',
} = {}): CacheEntry {
  const network = { cniVersion: '1.0.0' as const, name, plugins: [{ type: 'sriov', vlan: 5 }] };
  return { kind, attachment: { network, containerId, netnsPath: '/run/netns/a', ifName } };
}

const onlyFile = () => join(dir, readdirSync(dir)[0]!);

describe('CniCache', () => {
  it('returns what was written, even to another process', async () => {
    const entry: CacheEntry = {
      ...entryOf(),
      attachment: { ...entryOf().attachment, args: { A: 'b' }, deviceId: '0000:3b:02.1', capabilities: { mac: 'x' } },
      result: { cniVersion: '1.0.0', vendor: [1] },
      deleting: true,
    };
    await cache.write(entryOf());
    expect(await cache.read(entry)).toEqual(entryOf());
    await cache.write(entry);
    expect(await new CniCache(dir).read(entry)).toEqual(entry);
    expect(await new CniCache(dir).list()).toEqual({ entries: [entry], problems: [] });
  });

  it('is empty before the first write, and removes a missing entry without an error', async () => {
    expect(await cache.read(entryOf())).toBeUndefined();
    expect(await cache.list()).toEqual({ entries: [], problems: [] });
    await cache.remove(entryOf());
  });

  it('keeps entries of different kinds, networks, containers and interfaces apart, whatever their names', async () => {
    const entries = [
      entryOf(),
      entryOf({ kind: 'ipam' }),
      entryOf({ name: 'fast-c1', containerId: 'net1' }),
      entryOf({ name: 'fast', containerId: 'c1-net1' }),
      entryOf({ ifName: 'net2' }),
    ];
    for (const entry of entries) await cache.write(entry);
    for (const entry of entries) expect(await cache.read(entry)).toEqual(entry);
    await cache.remove(entries[0]!);
    expect((await cache.list()).entries).toHaveLength(4);
  });

  it('is readable by root only', async () => {
    await cache.write(entryOf());
    expect(statSync(dir).mode & 0o777).toBe(0o700);
    expect(statSync(onlyFile()).mode & 0o777).toBe(0o600);
  });

  it('removes an entry together with the temporary files that a crash left', async () => {
    await cache.write(entryOf());
    writeFileSync(`${onlyFile()}.0b1c.tmp`, '{"version":');
    expect((await cache.list()).entries).toHaveLength(1);
    await cache.remove(entryOf());
    expect(readdirSync(dir)).toEqual([]);
  });

  it.each([
    ['truncated', (text: string) => text.slice(0, -10)],
    ['in another format', (text: string) => text.replace('"version":1', '"version":2')],
    ['without a network', (text: string) => text.replace('"network"', '"net"')],
    ['with a program outside of the plugin folders', (text: string) => text.replace('"sriov"', '"../../sh"')],
    ['with an invalid container ID', (text: string) => text.replace('"c1"', '"../c1"')],
    ['of another container', (text: string) => text.replace('"c1"', '"c2"')],
  ])('reports a file that is %s, and still lists the others', async (_what, damage) => {
    await cache.write(entryOf());
    const path = onlyFile();
    const damaged = damage(readFileSync(path, 'utf8'));
    expect(damaged).not.toBe(readFileSync(path, 'utf8'));
    writeFileSync(path, damaged);
    await cache.write(entryOf({ ifName: 'net2' }));
    await expect(cache.read(entryOf())).rejects.toMatchObject({ code: 'cni-cache-unusable', path });
    expect(await cache.list()).toEqual({
      entries: [entryOf({ ifName: 'net2' })],
      problems: [expect.objectContaining({ code: 'cni-cache-unusable', path })],
    });
  });

  it('identifies an entry by its content, not its file name', async () => {
    await cache.write(entryOf());
    renameSync(onlyFile(), join(dir, `${'0'.repeat(64)}.json`));
    expect(await cache.read(entryOf())).toBeUndefined();
    expect(await cache.list()).toMatchObject({ entries: [], problems: [{ code: 'cni-cache-unusable' }] });
  });

  it('reports a failed write, and a directory that cannot be listed', async () => {
    mkdirSync(join(parent.path, 'state'));
    writeFileSync(dir, 'a file');
    await expect(cache.write(entryOf())).rejects.toMatchObject({ code: 'cni-cache-unusable', retriable: true });
    await expect(cache.list()).rejects.toMatchObject({ code: 'cni-cache-unusable' });
  });
});
