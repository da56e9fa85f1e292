import { execFileSync } from 'node:child_process';
import { closeSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { configureLink } from '../../src/driver/vf/configure-link.ts';
import { type InterfaceSysctls, RtnlConnection, writeInterfaceSysctls } from '../../src/node/netlink/index.ts';
import { loadSystemCalls, netlinkFamily } from '../../src/node/netlink/system-calls.ts';
import { fullPipe } from '../doubles/full-pipe.ts';
import { TestNetns } from '../doubles/netns.ts';
import { tempDir } from '../doubles/temp-dir.ts';

const openDescriptors = () => readdirSync('/proc/self/fd').length;

/** A pod and a host of the test's own, each with an interface of the same name. */
async function openBench(name = 'net1') {
  const stack = new DisposableStack();
  const own = stack.use(new TestNetns('pod'));
  const other = stack.use(new TestNetns('other'));
  // A new namespace inherits the setting of the initial one.
  own.exec('sh', '-c', 'echo 0 > /proc/sys/net/ipv4/conf/all/forwarding');
  const netns = stack.use(own.open());
  const pod = stack.use(RtnlConnection.open(netns));
  await pod.createVeth({ name, peer: { name: 'peer' } });
  other.exec('ip', 'link', 'add', name, 'type', 'veth', 'peer', 'name', 'peer');
  const link = await pod.link({ name });
  if (link === undefined) throw new Error(`${name} was not made`);
  const read = (key: string, from = own) => from.exec('cat', `/proc/sys/net/${key}`).trim();
  return { own, other, netns, pod, link, read, [Symbol.dispose]: () => stack.dispose() };
}

/** `/proc/sys/net` in another place, as containers have it. */
function mountElsewhere() {
  const stack = new DisposableStack();
  const { path } = stack.use(tempDir());
  const mounted = join(path, 'net');
  mkdirSync(mounted);
  execFileSync('mount', ['--bind', '/proc/sys/net', mounted]);
  stack.defer(() => execFileSync('umount', [mounted]));
  return { path, mounted, [Symbol.dispose]: () => stack.dispose() };
}

describe('writeInterfaceSysctls', () => {
  it('sets keys of the interface in its namespace only', async () => {
    using bench = await openBench();
    const { netns, other, read } = bench;
    const onHost = readFileSync('/proc/sys/net/ipv4/conf/lo/arp_ignore', 'utf8');
    await writeInterfaceSysctls(netns, 'net1', {
      'net.ipv4.conf.IFNAME.arp_ignore': 2,
      'net.ipv6.conf.IFNAME.accept_ra': '0',
      'net.ipv4.neigh.IFNAME.gc_stale_time': 77,
      'net.ipv6.neigh.IFNAME.gc_stale_time': 78,
    });
    expect(read('ipv4/conf/net1/arp_ignore')).toBe('2');
    expect(read('ipv6/conf/net1/accept_ra')).toBe('0');
    expect(read('ipv4/neigh/net1/gc_stale_time')).toBe('77');
    expect(read('ipv6/neigh/net1/gc_stale_time')).toBe('78');
    expect(read('ipv4/conf/peer/arp_ignore')).toBe('0');
    expect(read('ipv4/conf/all/arp_ignore')).toBe('0');
    expect(read('ipv4/conf/net1/arp_ignore', other)).toBe('0');
    // This thread is at home again.
    expect(readFileSync('/proc/sys/net/ipv4/conf/lo/arp_ignore', 'utf8')).toBe(onHost);
    expect(() => readFileSync('/proc/sys/net/ipv4/conf/peer/arp_ignore')).toThrow(/ENOENT/);
  });

  it('sets keys of interfaces whose names contain dots', async () => {
    using bench = await openBench('net1.7');
    await writeInterfaceSysctls(bench.netns, 'net1.7', { 'net.ipv4.conf.IFNAME.arp_notify': 1 });
    expect(bench.read('ipv4/conf/net1.7/arp_notify')).toBe('1');
  });

  it.each([
    [{ 'net.ipv4.conf.IFNAME.no_such_key': 1 }, /cannot set net\.ipv4\.conf\.IFNAME\.no_such_key to 1 in .*ENOENT/],
    [{ 'net.ipv4.conf.IFNAME.arp_ignore': 'many' }, /arp_ignore to "many" in .*EINVAL/],
    [{ 'net.ipv4.ip_forward': 1 }, /net\.ipv4\.ip_forward/],
    [{ 'net.ipv4.conf.all.forwarding': 1 }, /net\.ipv4\.conf\.all\.forwarding/],
    [{ 'net.ipv4.conf.IFNAME.../all/forwarding': 1 }, /cannot set/],
  ])('rejects %j and names the key', async (sysctls, message) => {
    using bench = await openBench();
    const write = writeInterfaceSysctls(bench.netns, 'net1', sysctls as Record<string, number | string>);
    await expect(write).rejects.toMatchObject({ code: 'sysctl-refused', message: expect.stringMatching(message) });
    expect(bench.read('ipv4/conf/all/forwarding')).toBe('0');
  });

  it.each(['..', 'a/b', '../all'])('rejects the interface name %j', async (name) => {
    using bench = await openBench();
    const write = writeInterfaceSysctls(bench.netns, name, { 'net.ipv4.conf.IFNAME.forwarding': 1 });
    await expect(write).rejects.toThrow(/is not an interface name/);
    expect(bench.read('ipv4/conf/all/forwarding')).toBe('0');
  });

  it("writes through the host's /proc/sys if that is mounted", async () => {
    using bench = await openBench();
    using elsewhere = mountElsewhere();
    await writeInterfaceSysctls(
      bench.netns,
      'net1',
      { 'net.ipv4.conf.IFNAME.arp_announce': 2 },
      { procSysDir: elsewhere.path },
    );
    expect(bench.read('ipv4/conf/net1/arp_announce')).toBe('2');
  });

  it('reports that /proc/sys is read-only, as in most containers, and the remedy', async () => {
    using bench = await openBench();
    using elsewhere = mountElsewhere();
    execFileSync('mount', ['-o', 'remount,bind,ro', elsewhere.mounted]);
    await expect(
      writeInterfaceSysctls(
        bench.netns,
        'net1',
        { 'net.ipv4.conf.IFNAME.arp_announce': 2 },
        { procSysDir: elsewhere.path },
      ),
    ).rejects.toMatchObject({ errno: 'EROFS', hint: expect.stringContaining('--proc-sys-dir') });
  });

  it('does not block the event loop during a stuck write, and gives up after its timeout', async () => {
    using bench = await openBench();
    using dir = tempDir();
    const folder = join(dir.path, 'net/ipv4/conf/net1');
    mkdirSync(folder, { recursive: true });
    using pipe = await fullPipe(join(folder, 'arp_announce'));
    const before = openDescriptors();
    const settings = { 'net.ipv4.conf.IFNAME.arp_announce': 2 };
    const writing = writeInterfaceSysctls(bench.netns, 'net1', settings, { procSysDir: dir.path, timeoutMs: 100 });
    await expect(writing).rejects.toMatchObject({
      code: 'sysctl-refused',
      retriable: true,
      message: expect.stringMatching(
        /cannot set net\.ipv4\.conf\.IFNAME\.arp_announce to 2 .* has not finished within 100 ms/,
      ),
    });
    pipe.drain();
    await expect.poll(openDescriptors).toBeLessThanOrEqual(before);
  });
});

/** Netlink calls in threads, from which the kernel does not return until the result is disposed. */
function blockedNetlink(count: number) {
  const { socket, send, recvAsync } = loadSystemCalls();
  const raw = 3;
  const descriptor = socket(netlinkFamily, raw, 0);
  const calls = Array.from({ length: count }, () => recvAsync(descriptor, Buffer.alloc(64), 0));
  return {
    async [Symbol.asyncDispose]() {
      // NLMSG_NOOP with NLM_F_REQUEST and NLM_F_ACK: the kernel answers each.
      const request = Buffer.alloc(16);
      request.writeUInt32LE(16);
      request.writeUInt16LE(1, 4);
      request.writeUInt16LE(5, 6);
      for (const _ of calls) send(descriptor, request, request.length, 0);
      await Promise.all(calls);
      closeSync(descriptor);
    },
  };
}

it('writeInterfaceSysctls leaves a thread free while writes hang in the kernel, and lets queued writes time out', async () => {
  using bench = await openBench();
  using dir = tempDir();
  using stack = new DisposableStack();
  // As many as Node.js has threads for files.
  const writes: Promise<unknown>[] = [];
  const pipes: { drain(): void }[] = [];
  for (const key of ['a', 'b', 'c', 'd']) {
    const folder = join(dir.path, key, 'net/ipv4/conf/net1');
    mkdirSync(folder, { recursive: true });
    pipes.push(stack.use(await fullPipe(join(folder, 'arp_announce'))));
    const options = { procSysDir: join(dir.path, key), timeoutMs: 500 };
    const writing = writeInterfaceSysctls(bench.netns, 'net1', { 'net.ipv4.conf.IFNAME.arp_announce': 2 }, options);
    writes.push(writing.catch((error: unknown) => error));
  }
  {
    await using _ = blockedNetlink(2);
    let isRead = false;
    void stat(dir.path).then(() => {
      isRead = true;
    });
    await expect.poll(() => isRead, { timeout: 10_000 }).toBe(true);
  }
  const errors = await Promise.all(writes);
  for (const error of errors) expect(error).toMatchObject({ code: 'sysctl-refused', retriable: true });
  const late = expect.stringMatching(/: the kernel has not finished within 500 ms$/);
  const kept = expect.stringMatching(/: the write waited 500 ms for other settings and requests of the node$/);
  expect(errors.map((error) => (error as Error).message)).toEqual([late, late, kept, kept]);
  for (const pipe of pipes) pipe.drain();
  // The next one is not kept waiting by those that have been given up.
  await writeInterfaceSysctls(bench.netns, 'net1', { 'net.ipv4.conf.IFNAME.arp_announce': 2 });
  expect(bench.read('ipv4/conf/net1/arp_announce')).toBe('2');
});

it('configureLink sets sysctls before addresses, since a sysctl can enable or disable IPv6', async () => {
  using bench = await openBench();
  const { pod, netns, link, read, own } = bench;
  const network = {
    connection: pod,
    writeSysctls: (name: string, settings: InterfaceSysctls) => writeInterfaceSysctls(netns, name, settings),
  };
  const off = { 'net.ipv6.conf.IFNAME.disable_ipv6': 1, 'net.ipv4.conf.IFNAME.arp_notify': 1 };
  await configureLink(network, link, { addresses: ['192.0.2.2/24'], sysctls: off });
  expect(read('ipv4/conf/net1/arp_notify')).toBe('1');
  const [{ addr_info }] = own.ip('addr', 'show', 'dev', 'net1');
  expect(addr_info).toEqual([expect.objectContaining({ local: '192.0.2.2' })]);
  const on = { 'net.ipv6.conf.IFNAME.disable_ipv6': 0 };
  await configureLink(network, link, { addresses: ['192.0.2.2/24', '2001:db8::2/64'], sysctls: on });
  const addresses = own.ip('addr', 'show', 'dev', 'net1')[0].addr_info.map(({ local }: { local: string }) => local);
  expect(addresses).toEqual(expect.arrayContaining(['192.0.2.2', '2001:db8::2']));
});
