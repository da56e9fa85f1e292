import { describe, expect } from 'vitest';
import { buildClaim, buildPod } from '../../../test/doubles/objects.ts';
import { classConfig, vfConfig } from '../vf-config.ts';
import { linkOf, networkDataOf, pfInfoOf, vfAt } from '../vfs.ts';
import { deviceName, readMetadata } from '../vm-node.ts';
import { it } from '../vm-test.ts';

describe('claims', () => {
  it('are served both, of one pod', async ({ node, vfs }) => {
    const claims = {
      data: { vf: vfAt(vfs, 'pf0', 4), interfaceName: 'data0', addresses: ['192.0.2.1/24'], vlan: 7 },
      control: { vf: vfAt(vfs, 'pf1', 4), interfaceName: 'ctl0', addresses: ['198.51.100.1/24'], vlan: 8 },
    };
    const pod = buildPod('two-claims', {
      resourceClaims: Object.keys(claims).map((name) => ({ name, resourceClaimName: name })),
    });
    for (const [name, { vf, vlan, ...rest }] of Object.entries(claims)) {
      const requests = [{ name: 'vf', devices: [deviceName(vf)] }];
      node.bench.api.create(
        buildClaim(name, { requests, config: [classConfig({ ...rest, vf: { vlan } })], pods: [pod] }),
      );
    }
    const running = await node.runPod(pod);
    for (const [name, { vf, interfaceName, addresses, vlan }] of Object.entries(claims)) {
      const link = linkOf(vf, running.sandbox.netnsPath);
      expect(link?.ifname).toBe(interfaceName);
      const { devices } = await readMetadata(running, name);
      expect(devices.map(({ networkData }) => networkData)).toEqual([networkDataOf(link!)]);
      expect(devices[0]?.networkData?.ips).toEqual(addresses);
      expect(pfInfoOf(vf)?.vlan_list).toEqual([expect.objectContaining({ vlan })]);
    }
  });

  it('may have three VFs', async ({ node, vfs }) => {
    const three = [vfAt(vfs, 'pf0', 0), vfAt(vfs, 'pf0', 6), vfAt(vfs, 'pf1', 0)];
    const running = await node.startPod('three', three, [vfConfig({ interfaceName: 'data%d', mtu: 1400 })]);
    const links = three.map((vf) => linkOf(vf, running.sandbox.netnsPath)!);
    expect(links.map(({ ifname, mtu }) => [ifname, mtu])).toEqual([
      ['data0', 1400],
      ['data1', 1400],
      ['data2', 1400],
    ]);
    const { devices } = await readMetadata(running);
    expect(devices.map(({ networkData }) => networkData)).toMatchObject(
      links.map(({ ifname, address }) => ({ interfaceName: ifname, hardwareAddress: address })),
    );
  });

  it('do not get a VF twice, also if they are prepared at once', async ({ node, vfs }) => {
    const contested = vfAt(vfs, 'pf0', 5);
    const config = (vlan: number) => [
      classConfig({ interfaceName: 'net1', addresses: ['192.0.2.1/24'], vf: { vlan } }),
    ];
    const rivals = [
      { vlan: 7, pod: node.createPod('first', contested, config(7)) },
      { vlan: 8, pod: node.createPod('second', contested, config(8)) },
    ];
    const bystander = node.createPod('bystander', vfAt(vfs, 'pf0', 6), config(9));
    const pods = [...rivals.map(({ pod }) => pod), bystander];
    const outcomes = await Promise.allSettled(pods.map((pod) => node.bench.prepare(pod)));
    expect(outcomes[2]?.status).toBe('fulfilled');
    expect(outcomes.map(({ status }) => status).sort()).toEqual(['fulfilled', 'fulfilled', 'rejected']);
    const isFirst = outcomes[0]?.status === 'fulfilled';
    const [winner, loser] = isFirst ? [rivals[0]!, rivals[1]!] : [rivals[1]!, rivals[0]!];
    const named = (pod: (typeof pods)[number]) => `claim default/${pod.metadata.name}`;
    const refused = new RegExp(`cannot be prepared for ${named(loser.pod)}: it is prepared for ${named(winner.pod)}`);
    expect(outcomes.find((outcome) => outcome.status === 'rejected')?.reason.message).toMatch(refused);
    await expect(node.bench.prepare(loser.pod)).rejects.toThrow(refused);
    // Ending the loser takes nothing from the winner.
    await node.bench.endPod(loser.pod);
    expect(pfInfoOf(contested)?.vlan_list).toEqual([expect.objectContaining({ vlan: winner.vlan })]);
    const sandbox = await node.bench.runSandbox(winner.pod);
    // The bystander has no sandbox yet, so the hook does not wait for the VF.
    await expect.poll(() => linkOf(contested, sandbox.netnsPath)?.ifname, { timeout: 30_000 }).toBe('net1');
  });
});
