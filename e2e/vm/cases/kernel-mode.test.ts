import { expect } from 'vitest';
import { NetnsHandle } from '../../../src/node/netlink/index.ts';
import { EthtoolIoctl, type EthtoolStruct } from '../../../test/doubles/ethtool-ioctl.ts';
import { classConfig, vfConfig } from '../vf-config.ts';
import { hostVfStates, linkOf, networkDataOf, pfInfoOf, type VfState, vfAt } from '../vfs.ts';
import { readMetadata } from '../vm-node.ts';
import { it } from '../vm-test.ts';

/** One answer shows the way; the emulated cards lose a packet now and then, and neighbours take seconds to become known. */
const reach = (address: string) => `for n in 1 2 3 4; do ping -c 1 -W 3 ${address} && break; done`;

/** Words of ethtool's structs. */
const [rxRing, txRing, rxUsecs] = [4, 7, 0];

function readEthtool(name: string, netnsPath?: string) {
  using netns = netnsPath === undefined ? NetnsHandle.own() : NetnsHandle.open(netnsPath);
  using ioctl = new EthtoolIoctl(netns);
  const word = (struct: EthtoolStruct, index: number) => ioctl.get(name, struct)[index];
  return { rx: word('rings', rxRing), tx: word('rings', txRing), rxUsecs: word('coalescing', rxUsecs) };
}

it('a kernel-mode VF is configured as claimed, reaches only its VLAN, and is restored when its pod stops', async ({
  node,
  vfs,
}) => {
  const vf = vfAt(vfs, 'pf0', 0);
  const ethtoolBefore = readEthtool(vf.name);
  const start = (name: string, each: VfState, vlan: number, host: number) =>
    node.startPod(name, each, [
      classConfig({ vf: { vlan } }),
      vfConfig({ interfaceName: 'net1', addresses: [`192.0.2.${host}/24`, `2001:db8::${host}/64`] }),
    ]);
  // Two at a time: the driver has 45 s to prepare a claim.
  const [running, sameCard] = await Promise.all([
    node.startPod('one', vf, [
      classConfig({
        macAddress: '02:11:22:33:44:55',
        vf: { trust: true, vlan: 7 },
        ethtool: { rings: { rx: 512, tx: 128 }, coalescing: { rxUsecs: 20 }, features: { 'rx-gro': false } },
      }),
      vfConfig({ interfaceName: 'net1', mtu: 1400, addresses: ['192.0.2.10/24', '2001:DB8:0::10/64'] }),
    ]),
    start('same-card', vfAt(vfs, 'pf0', 1), 7, 1),
  ]);
  const [otherCard] = await Promise.all([
    start('other-card', vfAt(vfs, 'pf1', 2), 7, 2),
    start('other-vlan', vfAt(vfs, 'pf0', 3), 8, 3),
  ]);
  expect(hostVfStates()).toHaveLength(vfs.length - 4);
  expect(pfInfoOf(vf)).toMatchObject({ address: '02:11:22:33:44:55', vlan_list: [{ vlan: 7 }], trust: true });
  // The first generation existed before the container; the VF's carrier follows a second later, with another one.
  const isUp = async () => (await node.metadataOnHost(running)).devices[0]?.attributes?.linkUp;
  await expect.poll(isUp, { timeout: 90_000 }).toEqual({ bool: true });
  const { generation, devices } = await readMetadata(running);
  expect(generation).toBeGreaterThanOrEqual(1);
  expect(devices).toHaveLength(1);
  const link = linkOf(vf, running.sandbox.netnsPath);
  expect(link).toMatchObject({
    ifname: 'net1',
    address: '02:11:22:33:44:55',
    mtu: 1400,
    flags: expect.arrayContaining(['UP', 'LOWER_UP']),
  });
  expect(readEthtool('net1', running.sandbox.netnsPath)).toEqual({ rx: 512, tx: 128, rxUsecs: 20 });
  expect(devices[0]?.networkData).toEqual(networkDataOf(link!));
  expect(devices[0]?.networkData?.ips).toEqual(['192.0.2.10/24', '2001:db8::10/64']);
  expect(devices[0]?.attributes).toMatchObject({
    'resource.kubernetes.io/pciBusID': { string: vf.pciAddress },
    mtu: { int: 1400 },
    mac: { string: '02:11:22:33:44:55' },
    vlan: { int: 7 },
    simulated: { bool: false },
  });

  const reached = ['192.0.2.1', '2001:db8::1', '192.0.2.2', '2001:db8::2'];
  const commands = [...reached.map(reach), 'ping -c 2 -i 0.3 -w 2 192.0.2.3 || true', 'ip neigh show dev net1'];
  // All in one, since the emulator takes seconds to start a process in a container.
  const { stdout, stderr, exitCode } = await running.container.exec('sh', '-c', commands.join('\n'));
  expect(exitCode, stderr).toBe(0);
  const answered = [...stdout.matchAll(/^--- (.*) ping statistics ---\n1 packets transmitted, 1 packets received/gm)];
  expect(answered.map(([, address]) => address)).toEqual(reached);
  expect(stdout).toMatch(/--- 192\.0\.2\.3 ping statistics ---\n\d+ packets transmitted, 0 packets received/);
  for (const [index, other] of [sameCard, otherCard].entries()) {
    // Not through the pod network: the answer came from the VF.
    const [there] = (await node.metadataOnHost(other)).devices;
    expect(stdout).toContain(`192.0.2.${index + 1} lladdr ${there?.networkData?.hardwareAddress}`);
  }
  await node.bench.endPod(running.pod);
  expect(hostVfStates()).toContainEqual(vf);
  expect(readEthtool(vf.name)).toEqual(ethtoolBefore);
});
