import { describe, expect } from 'vitest';
import { buildClaim, buildPod } from '../../../test/doubles/objects.ts';
import type { Bench, RunningContainer } from '../../node/bench.ts';
import type { Sandbox } from '../../node/pod.ts';
import {
  type ClaimConfig,
  classConfig,
  type DetailedLink,
  detailedLinks,
  deviceName,
  hostVfStates,
  readMetadata,
  type VfState,
  vfConfig,
} from '../vm-node.ts';
import { it } from '../vm-test.ts';

/** What the metadata must say of a link. */
function networkDataOf({ ifname, address, addr_info }: DetailedLink) {
  const ips = addr_info
    .filter(({ scope }) => scope === 'global')
    .map(({ local, prefixlen }) => `${local}/${prefixlen}`);
  return { interfaceName: ifname, hardwareAddress: address, ips: ips.sort() };
}

function vfAt(vfs: VfState[], pf: string, index: number): VfState {
  const vf = vfs.find((each) => each.pf === pf && each.index === index);
  if (vf === undefined) throw new Error(`${pf} has no VF ${index}`);
  return vf;
}

/** Starts a pod with one VF. The claim is called as the pod, its request `vf`. */
async function startPod(
  bench: Bench,
  name: string,
  vf: VfState,
  config: ClaimConfig[],
): Promise<{ sandbox: Sandbox; container: RunningContainer }> {
  const pod = buildPod(name, { resourceClaims: [{ name: 'nic', resourceClaimName: name }] });
  bench.api.create(buildClaim(name, { requests: [{ name: 'vf', devices: [deviceName(vf)] }], config, pods: [pod] }));
  const sandbox = await bench.startPod(pod);
  return { sandbox, container: await bench.startContainer(sandbox, pod) };
}

describe('a VF as an interface of a pod', () => {
  it('is described by generation 1 of the metadata as `ip` does in its network namespace', async ({ node, vfs }) => {
    const vf = vfAt(vfs, 'pf0', 0);
    const { sandbox, container } = await startPod(node, 'one', vf, [
      classConfig({ macAddress: '02:11:22:33:44:55' }),
      vfConfig({ interfaceName: 'net1', mtu: 1400, addresses: ['192.0.2.10/24', '2001:DB8:0::10/64'] }),
    ]);
    const link = detailedLinks(sandbox.netnsPath).find(({ parentdev }) => parentdev === vf.pciAddress);
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
      'resource.kubernetes.io/pciBusID': { string: vf.pciAddress },
      mtu: { int: 1400 },
      mac: { string: '02:11:22:33:44:55' },
      simulated: { bool: false },
    });
    expect(hostVfStates()).toHaveLength(vfs.length - 1);
  });

  it.for([
    { where: 'the same card', pf: 'pf0' },
    { where: 'another card', pf: 'pf1' },
  ])('reaches a VF of $where in another pod', async ({ pf }, { node, vfs }) => {
    const net = (host: number) =>
      vfConfig({ interfaceName: 'net1', addresses: [`192.0.2.${host}/24`, `2001:db8::${host}/64`] });
    const left = await startPod(node, `left-of-${pf}`, vfAt(vfs, 'pf0', 1), [net(1)]);
    const right = await startPod(node, `right-of-${pf}`, vfAt(vfs, pf, 2), [net(2)]);
    const [there] = (await readMetadata(right.container, `right-of-${pf}`, 'vf')).devices;
    for (const address of ['192.0.2.2', '2001:db8::2']) {
      const { stdout, exitCode } = await left.container.exec('ping', '-c', '3', '-i', '0.3', '-W', '5', address);
      expect(stdout).toContain('3 packets transmitted, 3 packets received');
      expect(exitCode).toBe(0);
    }
    // Not through the pod network: the one who answered is the VF.
    const { stdout: neighbors } = await left.container.exec('ip', 'neigh', 'show', 'dev', 'net1');
    expect(neighbors).toContain(`192.0.2.2 lladdr ${there?.networkData?.hardwareAddress}`);
  });
});
