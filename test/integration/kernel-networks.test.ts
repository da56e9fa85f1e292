import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { KernelNetworks } from '../../src/node/netlink/index.ts';
import { TestNetns } from '../doubles/netns.ts';
import { tempDir } from '../doubles/temp-dir.ts';

describe('KernelNetworks', () => {
  let networks: KernelNetworks;
  let dir: ReturnType<typeof tempDir>;
  beforeEach(() => {
    networks = new KernelNetworks({ procSysDir: '/proc/sys' });
    dir = tempDir();
  });
  afterEach(() => {
    networks[Symbol.dispose]();
    dir[Symbol.dispose]();
  });

  it("recognizes the host's network namespace under any path", () => {
    using host = networks.open('/proc/self/ns/net');
    expect(host?.isHost).toBe(true);
    using own = new TestNetns();
    using pod = networks.open(own.path);
    expect([pod?.isHost, pod?.identity === host?.identity]).toEqual([false, false]);
  });

  it('lists the links of an opened namespace', async () => {
    using own = new TestNetns();
    own.exec('ip', 'link', 'add', 'vf0', 'type', 'veth', 'peer', 'name', 'peer0');
    using pod = networks.open(own.path);
    expect((await pod?.connection.links())?.map(({ name }) => name)).toEqual(['lo', 'peer0', 'vf0']);
  });

  it('finds no namespace behind a missing path or a stale file of a killed runtime', () => {
    const file = join(dir.path, 'file');
    writeFileSync(file, '');
    expect([networks.open('/run/netns/gone'), networks.open(file)]).toEqual([undefined, undefined]);
  });

  it('reports a namespace as gone only if the directory of namespaces is visible', () => {
    const file = join(dir.path, 'file');
    writeFileSync(file, '');
    const gone = [join(dir.path, 'gone'), file, join(dir.path, 'nowhere/netns'), '/proc/self/ns/net'];
    expect(gone.map((path) => networks.isGone(path))).toEqual([true, false, false, false]);
  });
});
