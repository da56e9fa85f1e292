import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { DhcpDaemon } from '../../e2e/node/dhcp-daemon.ts';
import type { VfConfig } from '../../src/driver/model/index.ts';
import { NetnsHandle, RtnlConnection } from '../../src/node/netlink/index.ts';
import { DhcpServer } from '../doubles/dhcp-server.ts';
import type { TestNetns } from '../doubles/netns.ts';
import { tempDir } from '../doubles/temp-dir.ts';
import { AttachmentBench, links } from './attachment-bench.ts';

describe('a VF with ipam of type dhcp', () => {
  let stack: AsyncDisposableStack;
  let bench: AttachmentBench;
  let server: DhcpServer;
  let daemon: DhcpDaemon;
  let pod: TestNetns;
  /** Name of the VF in the pod. */
  let name: string;
  /** Whether the VF accepted router advertisements while it asked for its address. */
  let accepted: Set<string>;

  beforeEach(async () => {
    stack = new AsyncDisposableStack();
    bench = stack.use(new AttachmentBench());
    bench.createVf(1);
    const netns = stack.use(NetnsHandle.open('/proc/self/ns/net'));
    const connection = stack.use(RtnlConnection.open(netns));
    pod = bench.newPod();
    accepted = new Set();
    const look = () => accepted.add(pod.exec('cat', `/proc/sys/net/ipv6/conf/${name}/accept_ra`).trim());
    server = stack.use(new DhcpServer(netns, (await connection.link({ name: 'peer1' }))!, look));
    daemon = stack.use(await DhcpDaemon.start(stack.use(tempDir()).path));
  });
  afterEach(async () => await stack.disposeAsync());

  async function attach(config: VfConfig = { interfaceName: 'net1' }) {
    name = config.interfaceName ?? 'vf1';
    const ipam = { type: 'dhcp', daemonSocketPath: daemon.socketPath };
    bench.prepare('c', [{ index: 1, config: { ...config, ipam } }]);
    return await bench.attach('c', pod);
  }

  it('has a leased address in its pod, which is released when the VF is detached', async () => {
    const [state] = await attach();
    const [[, leased] = []] = [...server.leases];
    expect(state?.ips).toEqual([`${leased}/24`]);
    await bench.detach('c');
    await expect.poll(() => server.leases.size).toBe(0);
    expect(links()).toContain('vf1');
  });

  it('has a leased address even if its interface is not renamed in the pod', async () => {
    const [state] = await attach({});
    const [[, leased] = []] = [...server.leases];
    expect(state).toMatchObject({ interfaceName: 'vf1', ips: [`${leased}/24`] });
    await bench.detach('c');
    await expect.poll(() => server.leases.size).toBe(0);
  });

  it('keeps its lease if the pod renames its interface, until the VF is detached', async () => {
    const [{ ips } = {}] = await attach({});
    pod.exec('ip', 'link', 'set', 'vf1', 'down');
    pod.exec('ip', 'link', 'set', 'vf1', 'name', 'own', 'up');
    expect(await bench.attach('c', pod)).toMatchObject([{ interfaceName: 'own', ips }]);
    expect(server.leases.size).toBe(1);
    pod.unmount();
    await bench.detach('c');
    expect((await bench.runner.cachedAttachments()).attachments).toEqual([]);
  });

  it('leaves no lease behind if its network namespace is deleted before it is detached', async () => {
    await attach();
    pod.unmount();
    await bench.detach('c');
    expect((await bench.runner.cachedAttachments()).attachments).toEqual([]);
  });

  it('accepts no router advertisements while the daemon asks for an address', async () => {
    await attach();
    expect([...accepted]).toEqual(['0']);
  });
});
