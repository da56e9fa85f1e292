import { fstatSync, readdirSync, statSync } from 'node:fs';
import { describe, expect, it, vi } from 'vitest';
import { moveLink, NetnsHandle, openInNetns, RtnlConnection } from '../../src/node/netlink/index.ts';
import { KernelSocket } from '../../src/node/netlink/kernel-socket.ts';
import { RequestSocket } from '../../src/node/netlink/socket.ts';
import { takeThread } from '../../src/node/netlink/threads.ts';
import { TestNetns } from '../doubles/netns.ts';

const routeProtocol = 0;
const openDescriptors = () => readdirSync('/proc/self/fd').length;

/** Number of this process's descriptors of the file that one of them has open. */
function descriptorsOf(fd: number): number {
  const { dev, ino } = fstatSync(fd);
  const stats = readdirSync('/proc/self/fd').map((name) =>
    statSync(`/proc/self/fd/${name}`, { throwIfNoEntry: false }),
  );
  return stats.filter((stat) => stat?.dev === dev && stat.ino === ino).length;
}

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
      ended: () => socket.ended(),
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

  it('does not send a queued request that was aborted, and closes the namespace descriptor of that request', async () => {
    using stack = new DisposableStack();
    const host = stack.use(stack.use(new TestNetns('host')).open());
    const pod = stack.use(stack.use(new TestNetns('pod')).open());
    const connection = stack.use(RtnlConnection.open(host));
    await connection.createVeth({ name: 'vf0', peer: { name: 'peer0' } });
    const { index } = (await connection.link({ name: 'vf0' }))!;
    const never = new AbortController().signal;
    const threads = await Promise.all([1, 2, 3].map(() => takeThread(never)));
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    stack.defer(() => vi.useRealTimers());
    const before = descriptorsOf(pod.fd);
    // The first waits for a thread, the second for the first.
    const [large, move] = [connection.links(), connection.setLink(index, { netns: pod })];
    expect(descriptorsOf(pod.fd)).toBe(before + 1);
    const given = Promise.allSettled([large, move]);
    for (let exchange = 0; exchange < 2; exchange++) {
      await new Promise(setImmediate);
      await vi.advanceTimersByTimeAsync(10_000);
    }
    expect(await given).toMatchObject([
      { reason: { code: 'netlink-lost', retriable: true } },
      { reason: { code: 'netlink-lost', retriable: true } },
    ]);
    const left = descriptorsOf(pod.fd);
    for (const thread of threads) thread[Symbol.dispose]();
    // A descriptor that stays open keeps the namespace of a pod that is gone, and its VFs with it.
    expect(left).toBe(before);
    expect((await connection.links()).map(({ name }) => name).sort()).toEqual(['lo', 'peer0', 'vf0']);
  });

  it("moves a link into the intended pod even if the namespace's descriptor is reused before the kernel acts", async () => {
    using stack = new DisposableStack();
    const open = (name: string) => stack.use(stack.use(new TestNetns(name)).open());
    const [host, pod] = [open('host'), open('pod')];
    const otherNetns = stack.use(new TestNetns('other'));
    const socket = openInNetns(host, () => new KernelSocket(routeProtocol));
    const hung = Promise.withResolvers<void>();
    let isHung = false;
    let last = Promise.resolve();
    // Gives up at once, as after 10 s, and the kernel executes the request later.
    const late = {
      exchange: (requests: Buffer, onDatagram: (datagram: Buffer) => void) => {
        if (!isHung) return socket.exchange(requests, onDatagram);
        last = hung.promise.then(() => socket.exchange(requests, onDatagram));
        return Promise.reject(new Error('the kernel does not answer within 10000 ms'));
      },
      ended: () => last,
      close: () => socket.close(),
    };
    const connection = stack.use(new RtnlConnection(new RequestSocket(late)));
    await connection.createVeth({ name: 'vf0', peer: { name: 'peer0' } });
    const { index } = (await connection.link({ name: 'vf0' }))!;
    const inPod = stack.use(RtnlConnection.open(pod));
    isHung = true;
    const { fd } = pod;
    await expect(connection.setLink(index, { netns: pod })).rejects.toMatchObject({ code: 'netlink-lost' });
    pod[Symbol.dispose]();
    const others = Array.from({ length: 64 }, () => stack.use(otherNetns.open()));
    expect(others.map((other) => other.fd)).toContain(fd);
    const before = openDescriptors();
    hung.resolve();
    await last;
    expect((await inPod.links()).map(({ name }) => name)).toEqual(['lo', 'vf0']);
    await expect.poll(openDescriptors).toBeLessThan(before);
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
