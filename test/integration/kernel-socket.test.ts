import { readdirSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { moveLink, NetnsHandle, openInNetns, RtnlConnection } from '../../src/node/netlink/index.ts';
import { KernelSocket } from '../../src/node/netlink/kernel-socket.ts';
import { RequestSocket } from '../../src/node/netlink/socket.ts';
import { TestNetns } from '../doubles/netns.ts';

const routeProtocol = 0;
const openDescriptors = () => readdirSync('/proc/self/fd').length;

describe('KernelSocket', () => {
  it('does not block the event loop while the kernel moves a link', async () => {
    using host = new TestNetns('host');
    using pod = new TestNetns('pod');
    using hostHandle = host.open();
    using podHandle = pod.open();
    using from = RtnlConnection.open(hostHandle);
    using to = RtnlConnection.open(podHandle);
    let turns = 0;
    let isMoving = true;
    const count = () => {
      turns++;
      if (isMoving) setImmediate(count);
    };
    await from.createVeth({ name: 'vf0', peer: { name: 'peer0' } });
    let link = (await from.link({ name: 'vf0' }))!;
    count();
    // Some 10 ms for each of them, in which the loop would not turn once if the kernel were waited for in it.
    for (let move = 0; move < 4; move++) {
      link = await moveLink(from, link, { netns: podHandle, connection: to });
      link = await moveLink(to, link, { netns: hostHandle, connection: from });
    }
    isMoving = false;
    expect(turns).toBeGreaterThan(200);
  });

  it('answers requests sent together, also if one of them fails', async () => {
    using netns = new TestNetns();
    using handle = netns.open();
    using connection = RtnlConnection.open(handle);
    const answers = await Promise.allSettled([
      connection.link({ name: 'lo' }),
      connection.setLink(999, { up: true }),
      connection.links(),
      connection.link({ name: 'none' }),
    ]);
    expect(answers).toMatchObject([
      { status: 'fulfilled', value: { name: 'lo' } },
      { status: 'rejected', reason: { code: 'netlink-refused', errno: 'ENODEV' } },
      { status: 'fulfilled', value: [{ name: 'lo' }] },
      { status: 'fulfilled', value: undefined },
    ]);
  });

  it('serves 600 connections at once, although koffi accepts fewer concurrent calls', async () => {
    using netns = new TestNetns();
    using handle = netns.open();
    using stack = new DisposableStack();
    const connections = Array.from({ length: 600 }, () => stack.use(RtnlConnection.open(handle)));
    const answers = await Promise.all(connections.map((connection) => connection.links()));
    expect(answers.every(([link]) => link?.name === 'lo')).toBe(true);
  });

  it('asks the kernel for the addresses of one link, not of all', async () => {
    using netns = new TestNetns();
    using handle = netns.open();
    const socket = openInNetns(handle, () => new KernelSocket(routeProtocol));
    let datagrams = 0;
    const counting = {
      exchange: (requests: Buffer, onDatagram: (datagram: Buffer) => void) =>
        socket.exchange(requests, (datagram) => {
          datagrams += datagram.length;
          onDatagram(datagram);
        }),
      close: () => socket.close(),
    };
    using connection = new RtnlConnection(new RequestSocket(counting));
    await connection.createVeth({ name: 'vf0', peer: { name: 'other0' } });
    const [vf, other] = [(await connection.link({ name: 'vf0' }))!, (await connection.link({ name: 'other0' }))!];
    for (let host = 1; host <= 200; host++) await connection.addAddress(other.index, `10.0.0.${host}/32`);
    await connection.addAddress(vf.index, '192.0.2.1/24');
    datagrams = 0;
    expect(await connection.addresses(vf.index)).toMatchObject([{ cidr: '192.0.2.1/24' }]);
    expect(datagrams).toBeLessThan(1_000);
    expect(await connection.addresses()).toHaveLength(201);
    expect(datagrams).toBeGreaterThan(10_000);
    expect(await connection.addresses(999)).toEqual([]);
  });

  it('closes its descriptor exactly once, after all pending requests', async () => {
    using own = NetnsHandle.own();
    const before = openDescriptors();
    const connection = RtnlConnection.open(own);
    expect(openDescriptors()).toBeGreaterThan(before);
    const answer = connection.links();
    connection[Symbol.dispose]();
    connection[Symbol.dispose]();
    await expect(answer).rejects.toMatchObject({ code: 'netlink-closed' });
    await expect.poll(openDescriptors).toBeLessThanOrEqual(before);
  });

  it('reports a protocol that the kernel lacks', () => {
    expect(() => new KernelSocket(31)).toThrow(expect.objectContaining({ code: 'netlink-lost', retriable: true }));
    new KernelSocket(routeProtocol).close();
  });
});
