import { readFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { EtherType, NetnsHandle, PacketSocket } from '../../src/node/netlink/index.ts';
import { AttachmentBench, ip } from './attachment-bench.ts';

let bench: AttachmentBench;
beforeEach(() => {
  bench = new AttachmentBench();
  bench.createVf(1);
});
afterEach(() => bench[Symbol.asyncDispose]());

/** What has arrived at the other end of the VF's network, in hexadecimal. */
function capture() {
  const netns = NetnsHandle.own();
  const index = Number(readFileSync('/sys/class/net/peer1/ifindex', 'utf8'));
  const socket = new PacketSocket(netns, index, EtherType.all);
  const all: string[] = [];
  const frames = () => {
    for (let frame = socket.receive(); frame !== undefined; frame = socket.receive()) all.push(frame.toString('hex'));
    return all;
  };
  return {
    frames,
    [Symbol.dispose]() {
      socket[Symbol.dispose]();
      netns[Symbol.dispose]();
    },
  };
}

/** ARP with the same sender and target, and an unsolicited neighbour advertisement with the flag Override. */
const arpOf = (mac: string, address: string) =>
  new RegExp(`^ffffffffffff${mac}0806.{8}06040001${mac}${address}000000000000${address}`);
const naOf = (mac: string, address: string) =>
  new RegExp(`^333300000001${mac}86dd.{8}00203aff${address}ff02(00){13}018800....20000000${address}0201${mac}$`);
const vfMac = '020000000001';
const ipv6 = '20010db8000000000000000000000010';

describe('announcements for an attached VF', () => {
  const config = { interfaceName: 'net1', addresses: ['192.0.2.10/24', '2001:db8::10/64'] };

  it('announce each of its addresses to the network', async () => {
    using network = capture();
    bench.prepare('c', [{ index: 1, config }]);
    const pod = bench.newPod();
    const [first] = await bench.attach('c', pod);
    // Containers can use both at once.
    expect(first).toMatchObject({ ips: ['192.0.2.10/24', '2001:db8::10/64'], tentative: false });
    await expect.poll(network.frames).toContainEqual(expect.stringMatching(arpOf(vfMac, 'c000020a')));
    // The kernel has looked for others that have the IPv6 address.
    await expect.poll(async () => (await bench.read('c', pod))[0]?.unconfirmed).toBeUndefined();
    await expect.poll(network.frames).toContainEqual(expect.stringMatching(naOf(vfMac, ipv6)));
    expect(bench.logger.lines.filter(({ level }) => level === 'warn')).toEqual([]);
  });

  it('announce the addresses that an IPAM plugin assigned', async () => {
    using network = capture();
    bench.prepare('c', [{ index: 1, config: { interfaceName: 'net1', ipam: bench.ipam() } }]);
    await bench.attach('c', bench.newPod());
    await expect.poll(network.frames).toContainEqual(expect.stringMatching(arpOf(vfMac, '0a59070a')));
  });

  it('replace stale MAC addresses in the neighbor caches of other hosts', async () => {
    ip('address', 'add', '192.0.2.1/24', 'dev', 'peer1');
    ip('address', 'add', '2001:db8::1/64', 'dev', 'peer1', 'nodad');
    for (const address of ['192.0.2.10', '2001:db8::10']) {
      ip('neigh', 'replace', address, 'lladdr', '02:00:00:00:00:99', 'dev', 'peer1', 'nud', 'stale');
    }
    bench.prepare('c', [{ index: 1, config }]);
    const pod = bench.newPod();
    await bench.attach('c', pod);
    await expect.poll(async () => (await bench.read('c', pod))[0]?.unconfirmed).toBeUndefined();
    const remembered = () => {
      const known: { dst: string; lladdr: string }[] = JSON.parse(ip('-j', 'neigh', 'show', 'dev', 'peer1'));
      return ['192.0.2.10', '2001:db8::10'].map((address) => known.find(({ dst }) => dst === address)?.lladdr);
    };
    await expect.poll(remembered).toEqual(['02:00:00:00:00:01', '02:00:00:00:00:01']);
  });

  it('wait until the interface has a carrier', async () => {
    using network = capture();
    bench.prepare('c', [{ index: 1, config }]);
    ip('link', 'set', 'peer1', 'down');
    const pod = bench.newPod();
    expect(await bench.attach('c', pod)).toMatchObject([{ linkUp: false }]);
    ip('link', 'set', 'peer1', 'up');
    expect(network.frames().filter((frame) => arpOf(vfMac, 'c000020a').test(frame))).toEqual([]);
    await expect.poll(() => bench.read('c', pod)).toMatchObject([{ linkUp: true }]);
    await expect.poll(network.frames).toContainEqual(expect.stringMatching(arpOf(vfMac, 'c000020a')));
  });
});

describe('an attached VF with an address that another host has', () => {
  const other = '02:00:00:00:00:99';
  const config = { interfaceName: 'net1', addresses: ['192.0.2.10/24', '2001:db8::10/64', '192.0.2.11/24'] };

  beforeEach(() => {
    ip('link', 'set', 'peer1', 'address', other);
    ip('address', 'add', '192.0.2.10/24', 'dev', 'peer1');
    ip('address', 'add', '2001:db8::10/64', 'dev', 'peer1', 'nodad');
    bench.prepare('c', [{ index: 1, config }]);
  });

  it('keeps its IPv4 address without announcing it, and reports the MAC of the other host', async () => {
    using network = capture();
    const pod = bench.newPod();
    await bench.attach('c', pod);
    await expect.poll(() => bench.conflicts).toEqual(['pod-uid']);
    const [state] = await bench.read('c', pod);
    expect(state?.conflicts).toEqual(new Map([['192.0.2.10/24', other]]));
    expect(state?.ips).toEqual(expect.arrayContaining(['192.0.2.10/24', '192.0.2.11/24']));
    const sent = (address: string) => network.frames().filter((frame) => arpOf(vfMac, address).test(frame)).length;
    // The first probe may have been lost on a link that was just set up, and then both addresses were announced.
    const early = sent('c000020a');
    expect(early).toBeLessThanOrEqual(1);
    await expect.poll(() => sent('c000020b')).toBeGreaterThanOrEqual(2);
    expect(sent('c000020a')).toBe(early);
    expect(bench.conflicts).toHaveLength(1);
  });

  it('announces its IPv4 address once the other host has released it', async () => {
    const pod = bench.newPod();
    await bench.attach('c', pod);
    await expect.poll(() => bench.conflicts).toEqual(['pod-uid']);
    ip('address', 'del', '192.0.2.10/24', 'dev', 'peer1');
    using network = capture();
    // Unless the second probe was still to come, the next one is sent by a reading ten seconds later.
    const conflicts = async () => (await bench.read('c', pod))[0]?.conflicts;
    await expect.poll(conflicts, { timeout: 60_000, interval: 250 }).toBeUndefined();
    expect(bench.conflicts).toEqual(['pod-uid', 'pod-uid']);
    expect(network.frames()).toContainEqual(expect.stringMatching(arpOf(vfMac, 'c000020a')));
  });

  it('loses its IPv6 address, which is not announced', async () => {
    using network = capture();
    const pod = bench.newPod();
    await bench.attach('c', pod);
    const read = async () => (await bench.read('c', pod))[0];
    await expect.poll(read).toMatchObject({ duplicates: ['2001:db8::10/64'] });
    expect((await read())?.ips).not.toContain('2001:db8::10/64');
    expect(network.frames().filter((frame) => naOf(vfMac, ipv6).test(frame))).toEqual([]);
  });
});

it('the search for duplicate addresses does not mistake another VF of the pod for another host', async () => {
  bench.createVf(2);
  using network = capture();
  for (const peer of ['peer1', 'peer2']) ip('link', 'set', peer, 'master', bench.bridge());
  bench.prepare('two', [
    { index: 1, config: { interfaceName: 'net1', addresses: ['192.0.2.10/24'] } },
    { index: 2, config: { interfaceName: 'net2', addresses: ['192.0.2.20/24'] } },
  ]);
  const pod = bench.newPod();
  await bench.attach('two', pod);
  // Twice each: after both probes.
  const sent = (mac: string, address: string) =>
    network.frames().filter((frame) => arpOf(mac, address).test(frame)).length;
  await expect.poll(() => sent(vfMac, 'c000020a')).toBeGreaterThanOrEqual(2);
  await expect.poll(() => sent('020000000002', 'c0000214')).toBeGreaterThanOrEqual(2);
  expect(bench.conflicts).toEqual([]);
});
