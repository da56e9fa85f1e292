import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { buildClaim, buildPod } from '../../../test/doubles/objects.ts';
import type { Bench, RunningContainer } from '../../node/bench.ts';
import type { Sandbox } from '../../node/pod.ts';
import {
  classConfig,
  type DetailedLink,
  detailedLinks,
  hostVfStates,
  offeredDevices,
  readMetadata,
  startVmBench,
  startVmDriver,
  type VfState,
  vfConfig,
} from '../vm-node.ts';

/** What the metadata must say of a link. */
function networkDataOf({ ifname, address, addr_info }: DetailedLink) {
  const ips = addr_info
    .filter(({ scope }) => scope === 'global')
    .map(({ local, prefixlen }) => `${local}/${prefixlen}`);
  return { interfaceName: ifname, hardwareAddress: address, ips: ips.sort() };
}

describe('a VF as an interface of a pod', () => {
  let bench: Bench;
  let before: VfState[];
  beforeAll(async () => {
    bench = await startVmBench(new RecordingLogger());
    await startVmDriver(bench);
    before = hostVfStates();
  });
  afterAll(async () => {
    await bench?.[Symbol.asyncDispose]();
  });
  afterEach(async () => {
    await bench.endAllPods();
    expect(hostVfStates()).toEqual(before);
    expect(bench.claimFiles()).toEqual([]);
  });

  /** Starts a pod with one VF; the name is that of pod, claim and container. */
  async function startPod(
    name: string,
    pciAddress: string,
    config: ReturnType<typeof vfConfig | typeof classConfig>[],
  ): Promise<{ sandbox: Sandbox; container: RunningContainer }> {
    const device = pciAddress.replaceAll(/[:.]/g, '-');
    expect(offeredDevices(bench).map((each) => each.name)).toContain(device);
    const pod = buildPod(name, { resourceClaims: [{ name: 'nic', resourceClaimName: name }] });
    bench.api.create(buildClaim(name, { requests: [{ name: 'vf', devices: [device] }], config, pods: [pod] }));
    const sandbox = await bench.startPod(pod);
    return { sandbox, container: await bench.startContainer(sandbox, pod) };
  }

  const vfAt = (card: 0 | 1, index: number) => {
    const vf = before.find(({ name }) => name === `pf${card}v${index}`);
    if (vf === undefined) throw new Error(`no VF ${index} of pf${card}`);
    return vf;
  };

  it('is described by generation 1 of the metadata as `ip` does in its network namespace', async () => {
    const { pciAddress } = vfAt(0, 0);
    const { sandbox, container } = await startPod('one', pciAddress, [
      classConfig({ macAddress: '02:11:22:33:44:55' }),
      vfConfig({ interfaceName: 'net1', mtu: 1400, addresses: ['192.0.2.10/24', '2001:DB8:0::10/64'] }),
    ]);
    const link = detailedLinks(sandbox.netnsPath).find(({ parentdev }) => parentdev === pciAddress);
    expect(link).toMatchObject({
      ifname: 'net1',
      address: '02:11:22:33:44:55',
      mtu: 1400,
      flags: expect.arrayContaining(['UP', 'LOWER_UP']),
    });
    const { generation, devices } = await readMetadata(container, 'one', 'vf');
    expect(generation).toBe(1);
    expect(devices).toHaveLength(1);
    expect(devices[0]?.networkData).toEqual(networkDataOf(link!));
    expect(devices[0]?.networkData?.ips).toEqual(['192.0.2.10/24', '2001:db8::10/64']);
    expect(devices[0]?.attributes).toMatchObject({
      'resource.kubernetes.io/pciBusID': { string: pciAddress },
      mtu: { int: 1400 },
      mac: { string: '02:11:22:33:44:55' },
      simulated: { bool: false },
    });
    expect(hostVfStates()).toHaveLength(13);
  });

  it.each([
    { where: 'the same card', card: 0 as const },
    { where: 'another card', card: 1 as const },
  ])('reaches a VF of $where in another pod', async ({ card }) => {
    const net = (host: number) =>
      vfConfig({ interfaceName: 'net1', addresses: [`192.0.2.${host}/24`, `2001:db8::${host}/64`] });
    const left = await startPod('left', vfAt(0, 1).pciAddress, [net(1)]);
    await startPod('right', vfAt(card, 2).pciAddress, [net(2)]);
    for (const address of ['192.0.2.2', '2001:db8::2']) {
      const { stdout, exitCode } = await left.container.exec('ping', '-c', '3', '-i', '0.2', '-W', '5', address);
      expect(stdout).toMatch(/3 packets transmitted, [1-3] packets received/);
      expect(exitCode).toBe(0);
    }
    // Not through the pod network: the answers came in by the VF.
    const neighbors = await left.container.exec('ip', 'neigh', 'show', 'dev', 'net1');
    expect(neighbors.stdout).toContain('192.0.2.2 lladdr');
  });
});
