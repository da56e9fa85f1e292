import { describe, expect } from 'vitest';
import { classConfig, vfConfig } from '../vf-config.ts';
import { hostVfStates, linkOf, networkDataOf, pfInfoOf, vfAt } from '../vfs.ts';
import { type RunningPod, readMetadata } from '../vm-node.ts';
import { it } from '../vm-test.ts';

/** Runs shell commands in the pod. All in one, since the emulator takes seconds to start a process in a container. */
async function runInPod({ container }: RunningPod, ...commands: string[]): Promise<string> {
  const { stdout, stderr, exitCode } = await container.exec('sh', '-c', commands.join('\n'));
  expect(exitCode, stderr).toBe(0);
  return stdout;
}

const ping = (address: string, timeoutSeconds = 10) => `ping -c 2 -i 0.3 -W 5 -w ${timeoutSeconds} ${address} || true`;

describe('a VF as an interface of a pod', () => {
  it('is as its claim wants it, and the metadata says what `ip` says of it', async ({ node, vfs }) => {
    const vf = vfAt(vfs, 'pf0', 0);
    const running = await node.startPod('one', vf, [
      classConfig({ macAddress: '02:11:22:33:44:55', vf: { trust: true, vlan: 7 } }),
      vfConfig({
        interfaceName: 'net1',
        mtu: 1400,
        addresses: ['192.0.2.10/24', '2001:DB8:0::10/64'],
      }),
    ]);
    expect(pfInfoOf(vf)).toMatchObject({ address: '02:11:22:33:44:55', vlan_list: [{ vlan: 7 }], trust: true });
    // The first generation existed before the container; the VF's carrier follows a second later, with another one.
    const isUp = async () => (await readMetadata(running)).devices[0]?.attributes?.linkUp;
    await expect.poll(isUp, { timeout: 30_000 }).toEqual({ bool: true });
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
    expect(devices[0]?.networkData).toEqual(networkDataOf(link!));
    expect(devices[0]?.networkData?.ips).toEqual(['192.0.2.10/24', '2001:db8::10/64']);
    expect(devices[0]?.attributes).toMatchObject({
      'resource.kubernetes.io/pciBusID': { string: vf.pciAddress },
      mtu: { int: 1400 },
      mac: { string: '02:11:22:33:44:55' },
      vlan: { int: 7 },
      simulated: { bool: false },
    });
    expect(hostVfStates()).toHaveLength(vfs.length - 1);
  });

  it('reaches VFs of the same card and of another one in other pods', async ({ node, vfs }) => {
    const net = (host: number) =>
      vfConfig({ interfaceName: 'net1', addresses: [`192.0.2.${host}/24`, `2001:db8::${host}/64`] });
    const [left, ...others] = await Promise.all([
      node.startPod('left', vfAt(vfs, 'pf0', 1), [net(1)]),
      node.startPod('same-card', vfAt(vfs, 'pf0', 2), [net(2)]),
      node.startPod('other-card', vfAt(vfs, 'pf1', 2), [net(3)]),
    ]);
    const addresses = others.flatMap((_, index) => [`192.0.2.${index + 2}`, `2001:db8::${index + 2}`]);
    const output = await runInPod(left, ...addresses.map((address) => ping(address)), 'ip neigh show dev net1');
    for (const address of addresses) {
      expect(output).toMatch(
        new RegExp(`--- ${address} ping statistics ---\n2 packets transmitted, 2 packets received`),
      );
    }
    for (const [index, other] of others.entries()) {
      // Not through the pod network: the answer came from the VF.
      const [there] = (await readMetadata(other)).devices;
      expect(output).toContain(`192.0.2.${index + 2} lladdr ${there?.networkData?.hardwareAddress}`);
    }
  });

  it('reaches those in its VLAN only', async ({ node, vfs }) => {
    const net = (host: number, vlan: number) =>
      classConfig({ interfaceName: 'net1', addresses: [`192.0.2.${host}/24`], vf: { vlan } });
    const [seven] = await Promise.all([
      node.startPod('seven', vfAt(vfs, 'pf0', 1), [net(1, 7)]),
      node.startPod('seven-too', vfAt(vfs, 'pf0', 2), [net(2, 7)]),
      node.startPod('eight', vfAt(vfs, 'pf0', 3), [net(3, 8)]),
    ]);
    const output = await runInPod(seven, ping('192.0.2.2'), ping('192.0.2.3', 2));
    expect(output).toMatch(/--- 192\.0\.2\.2 ping statistics ---\n2 packets transmitted, 2 packets received/);
    expect(output).toMatch(/--- 192\.0\.2\.3 ping statistics ---\n\d+ packets transmitted, 0 packets received/);
  });
});
