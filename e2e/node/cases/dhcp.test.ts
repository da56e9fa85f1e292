import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { decodeStream } from '../../../src/framework/metadata/index.ts';
import { NetnsHandle, RtnlConnection } from '../../../src/node/netlink/index.ts';
import { DhcpServer } from '../../../test/doubles/dhcp-server.ts';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { Bench } from '../bench.ts';
import { DhcpDaemon } from '../dhcp-daemon.ts';
import { addVfPod, expectClean, expectTold, pathInContainer } from '../vf-pod.ts';

it('a pod has its DHCP lease in metadata generation 1, and keeps the lease across a driver restart', async () => {
  await using stack = new AsyncDisposableStack();
  const dir = mkdtempSync(join(tmpdir(), 'netdra-dhcp-'));
  stack.defer(() => rmSync(dir, { recursive: true }));
  const { socketPath } = stack.use(await DhcpDaemon.start(dir));
  const bench = stack.use(await Bench.start({ version: '1.7', logger: new RecordingLogger() }));
  await bench.startDriver();
  const netns = stack.use(NetnsHandle.open('/proc/self/ns/net'));
  const connection = stack.use(RtnlConnection.open(netns));
  // The default route is that of eth0.
  const request = [{ skipDefault: true, option: 'subnet-mask' }];
  const ipam = { type: 'dhcp', daemonSocketPath: socketPath, request };
  const pod = await addVfPod(bench, 'leased', 0, {
    ipam,
    addresses: [],
  });
  const server = stack.use(new DhcpServer(netns, (await connection.link({ name: 'nsim0' }))!));
  const sandbox = await bench.startPod(pod);
  const container = await bench.startContainer(sandbox, pod);
  expect(await expectTold(container, sandbox, pod)).toBe(1);
  const { stdout } = await container.exec('cat', pathInContainer('leased'));
  const [leased] = server.leases.values();
  expect(decodeStream(stdout).devices[0]?.networkData?.ips).toEqual([`${leased}/24`]);
  await bench.stopDriver();
  await bench.startDriver();
  expect(await expectTold(container, sandbox, pod)).toBe(1);
  expect([...server.leases.values()]).toEqual([leased]);
  await bench.endPod(pod);
  expect([...server.leases.values()]).toEqual([]);
  await expectClean(bench);
});
