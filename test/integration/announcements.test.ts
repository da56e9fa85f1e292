import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { EtherType, NetnsHandle, PacketSocket } from '../../src/node/netlink/index.ts';
import { AttachmentBench, ip } from './attachment-bench.ts';

let bench: AttachmentBench;
beforeEach(() => {
  bench = new AttachmentBench();
  bench.createVf(1);
});
afterEach(() => bench[Symbol.asyncDispose]());

/** What arrives at the other end of the VF's network, in hexadecimal. */
function capture() {
  const netns = NetnsHandle.own();
  const index = Number(readFileSync('/sys/class/net/peer1/ifindex', 'utf8'));
  const socket = new PacketSocket(netns, index, EtherType.all);
  const frames = () => {
    const all: string[] = [];
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

describe('a VF that is attached with addresses', () => {
  const config = { interfaceName: 'net1', addresses: ['192.0.2.10/24', '2001:db8::10/64'] };

  it('announces each of them to its network', async () => {
    using network = capture();
    bench.prepare('c', [{ index: 1, config }]);
    await bench.attach('c', bench.newPod());
    await sleep(300);
    const frames = network.frames();
    expect(frames).toContainEqual(expect.stringMatching(arpOf(vfMac, 'c000020a')));
    expect(frames).toContainEqual(expect.stringMatching(naOf(vfMac, ipv6)));
    expect(bench.logger.lines.filter(({ level }) => level === 'warn')).toEqual([]);
  });

  it('announces those of an IPAM plugin', async () => {
    using network = capture();
    bench.prepare('c', [{ index: 1, config: { interfaceName: 'net1', ipam: bench.ipam() } }]);
    await bench.attach('c', bench.newPod());
    await sleep(300);
    expect(network.frames()).toContainEqual(expect.stringMatching(arpOf(vfMac, '0a59070a')));
  });

  it('replaces what neighbours know of the VF that had them before', async () => {
    ip('address', 'add', '192.0.2.1/24', 'dev', 'peer1');
    ip('address', 'add', '2001:db8::1/64', 'dev', 'peer1', 'nodad');
    for (const address of ['192.0.2.10', '2001:db8::10']) {
      ip('neigh', 'replace', address, 'lladdr', '02:00:00:00:00:99', 'dev', 'peer1', 'nud', 'stale');
    }
    bench.prepare('c', [{ index: 1, config }]);
    await bench.attach('c', bench.newPod());
    await sleep(300);
    const known = JSON.parse(ip('-j', 'neigh', 'show', 'dev', 'peer1'));
    const macOf = (address: string) => known.find(({ dst }: { dst: string }) => dst === address)?.lladdr;
    expect([macOf('192.0.2.10'), macOf('2001:db8::10')]).toEqual(['02:00:00:00:00:01', '02:00:00:00:00:01']);
  });

  it('announces them once it has a carrier', async () => {
    using network = capture();
    bench.prepare('c', [{ index: 1, config }]);
    ip('link', 'set', 'peer1', 'down');
    const pod = bench.newPod();
    expect(await bench.attach('c', pod)).toMatchObject([{ linkUp: false }]);
    ip('link', 'set', 'peer1', 'up');
    await sleep(100);
    expect(network.frames().filter((frame) => arpOf(vfMac, 'c000020a').test(frame))).toEqual([]);
    expect(await bench.read('c', pod)).toMatchObject([{ linkUp: true }]);
    await bench.read('c', pod);
    await sleep(300);
    expect(network.frames().filter((frame) => arpOf(vfMac, 'c000020a').test(frame))).toHaveLength(1);
  });
});
