import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { VfConfig } from '../../src/driver/model/index.ts';
import type { TestNetns } from '../doubles/netns.ts';
import { AttachmentBench, ip, links, pciAddress } from './attachment-bench.ts';

let bench: AttachmentBench;
beforeEach(() => {
  bench = new AttachmentBench();
});
afterEach(() => bench[Symbol.asyncDispose]());

const inPod = (pod: TestNetns) =>
  pod
    .ip('addr', 'show')
    .filter(({ ifname }: { ifname: string }) => ifname !== 'lo')
    .map(({ ifname, address, mtu }: { ifname: string; address: string; mtu: number }) => ({ ifname, address, mtu }));

describe('a VF in user space', () => {
  const config = { interfaceName: 'dpdk0', mtu: 9000, addresses: ['2001:DB8:0::7/64'] };

  it('is described with data from PF, claim and IPAM plugin, but without an interface', async () => {
    bench.adminInfo = { hardwareAddress: '02:bb:00:00:00:07', vlan: { id: 7, priority: 0 } };
    bench.prepare('dpdk', [{ index: 1, config: { ...config, ipam: bench.ipam() }, userSpace: true }]);
    const pod = bench.newPod();
    expect(await bench.attach('dpdk', pod)).toEqual([
      {
        interfaceName: 'dpdk0',
        hardwareAddress: '02:bb:00:00:00:07',
        ips: ['10.89.7.10/24', '2001:db8::7/64'],
        tentative: false,
        mtuBytes: 9000,
        vlan: 7,
      },
    ]);
    expect(inPod(pod)).toEqual([]);
    expect(bench.leases()).toEqual(['10.89.7.10']);
    pod.unmount();
    await bench.detach('dpdk');
    expect(bench.leases()).toEqual([]);
  });

  it('has only the address of its latest sandbox, while earlier addresses are released', async () => {
    bench.prepare('dpdk', [{ index: 1, config: { ipam: bench.ipam() }, userSpace: true }]);
    await bench.attach('dpdk', bench.newPod(), 'sandbox1');
    const [state] = await bench.attach('dpdk', bench.newPod(), 'sandbox2');
    expect(bench.leases().map((address) => `${address}/24`)).toEqual(state?.ips);
    await bench.detach('dpdk');
    expect(bench.leases()).toEqual([]);
  });
});

describe('a VF attached by CNI plugins', () => {
  const chain = () => ({
    cniVersion: '1.0.0',
    name: 'fast',
    plugins: [
      { type: 'host-device', device: 'vf1', ipam: bench.ipam() },
      { type: 'tuning', capabilities: { mac: true }, mtu: 1400 },
    ],
  });
  const config = (): VfConfig => ({
    attach: 'cni',
    cni: chain(),
    interfaceName: 'net1',
    macAddress: '02:aa:00:00:00:01',
  });

  it('is reported as it is in its pod, and is restored and releases its address at detach', async () => {
    bench.createVf(1);
    bench.prepare('c', [{ index: 1, config: config() }]);
    const pod = bench.newPod();
    const [state] = await bench.attach('c', pod);
    expect(state).toMatchObject({ interfaceName: 'net1', mtuBytes: 1400, ips: ['10.89.7.10/24'] });
    expect(state?.hardwareAddress).toBe('02:aa:00:00:00:01');
    const { attachments } = await bench.runner.cachedAttachments();
    expect(attachments).toMatchObject([
      {
        attachment: {
          deviceId: pciAddress(1),
          args: {
            K8S_POD_NAMESPACE: 'default',
            K8S_POD_NAME: 'app',
            K8S_POD_UID: 'pod-uid',
            K8S_POD_INFRA_CONTAINER_ID: 'sandbox1',
          },
        },
      },
    ]);
    // Again, as after a restart in the middle: the plugins are not asked twice.
    expect(await bench.attach('c', pod)).toEqual([state]);
    expect(bench.leases()).toEqual(['10.89.7.10']);
    await bench.detach('c');
    expect(bench.leases()).toEqual([]);
    const [link] = JSON.parse(ip('-j', 'link', 'show', 'vf1'));
    expect(link).toMatchObject({ mtu: 1500, address: '02:00:00:00:00:01' });
    expect((await bench.runner.cachedAttachments()).attachments).toEqual([]);
  });

  it('gets the first free name of net1, net2, … in its pod, and keeps that name', async () => {
    for (const index of [1, 2]) bench.createVf(index);
    const pod = bench.newPod();
    pod.exec('ip', 'link', 'add', 'net1', 'type', 'veth', 'peer', 'name', 'net1p');
    const { interfaceName: _name, ...open } = config();
    const plugins = (index: number) => [{ type: 'host-device', device: `vf${index}` }];
    const cniOf = (index: number) => ({ ...chain(), plugins: plugins(index) });
    bench.prepare('named', [{ index: 2, config: { ...config(), cni: cniOf(2), interfaceName: 'net2' } }]);
    bench.prepare('open', [{ index: 1, config: { ...open, cni: cniOf(1) } }]);
    for (let round = 0; round < 2; round++) {
      expect(await bench.attach('open', pod)).toMatchObject([{ interfaceName: 'net3' }]);
    }
    await bench.detach('open');
    expect(links()).toContain('vf1');
    expect((await bench.runner.cachedAttachments()).attachments).toEqual([]);

    bench.prepare('named', [{ index: 2, config: { ...config(), cni: cniOf(2) } }]);
    await expect(bench.attach('named', pod)).rejects.toMatchObject({
      code: 'interface-name-taken',
      message: expect.stringContaining('cannot have the name net1 in pod default/app'),
    });
    await bench.detach('named');
    expect(pod.ip('link', 'show', 'net1')).toHaveLength(1);
    expect(links()).toContain('vf2');
  });
});

describe('a NIC that keeps the configuration of the host', () => {
  it('has its addresses and routes in each sandbox of the pod, and otherwise on the host', async () => {
    bench.createVf(1);
    ip('link', 'set', 'vf1', 'up');
    ip('addr', 'add', '192.0.2.7/24', 'dev', 'vf1', 'valid_lft', '6000', 'preferred_lft', '6000');
    ip('route', 'add', '198.51.100.0/24', 'via', '192.0.2.1', 'dev', 'vf1', 'metric', '7', 'proto', 'dhcp');
    const routes = () => ip('route', 'show', 'dev', 'vf1').replaceAll(' linkdown', '').trim();
    const before = routes();
    expect(before).toMatch(/^192\.0\.2\.0\/24 .*\n198\.51\.100\.0\/24 via 192\.0\.2\.1 proto dhcp metric 7$/);
    const config = { keepHostConfig: true, interfaceName: 'net1' };
    bench.prepare('c', [{ index: 1, config, before: await bench.snapshot('vf1') }]);
    for (const sandbox of ['sandbox1', 'sandbox2']) {
      const pod = bench.newPod();
      // Again, as after a restart in the middle.
      for (let round = 0; round < 2; round++) {
        expect(await bench.attach('c', pod, sandbox)).toMatchObject([{ interfaceName: 'net1', ips: ['192.0.2.7/24'] }]);
      }
      expect(pod.ip('route', 'show', '198.51.100.0/24')).toMatchObject([{ gateway: '192.0.2.1', metric: 7 }]);
      expect(links()).not.toContain('vf1');
    }
    await bench.detach('c');
    expect(routes()).toBe(before);
    expect(JSON.parse(ip('-j', 'addr', 'show', 'vf1'))).toMatchObject([
      { addr_info: expect.arrayContaining([expect.objectContaining({ local: '192.0.2.7', prefixlen: 24 })]) },
    ]);
  });

  it('gets its addresses and routes back even if it returned to the host under its pod name', async () => {
    bench.createVf(1);
    ip('link', 'set', 'vf1', 'up');
    ip('addr', 'add', '192.0.2.7/24', 'dev', 'vf1');
    ip('route', 'add', '198.51.100.0/24', 'via', '192.0.2.1', 'dev', 'vf1');
    const before = ip('route', 'show', 'dev', 'vf1');
    const config = { keepHostConfig: true, interfaceName: 'net1' };
    bench.prepare('c', [{ index: 1, config, before: await bench.snapshot('vf1') }]);
    const pod = bench.newPod();
    await bench.attach('c', pod);
    pod.exec('ip', 'link', 'set', 'net1', 'netns', `${process.pid}`);
    pod.unmount();
    ip('link', 'set', 'net1', 'up');
    ip('addr', 'add', '203.0.113.7/24', 'dev', 'net1');
    await bench.detach('c');
    expect(links()).not.toContain('net1');
    expect(ip('route', 'show', 'dev', 'vf1').replaceAll(' linkdown', '')).toBe(before.replaceAll(' linkdown', ''));
    expect(ip('addr', 'show', 'vf1')).not.toContain('203.0.113.7');
  });
});

describe('a pod without a default network', () => {
  const routes = [{ destination: '0.0.0.0/0', gateway: '10.89.7.1' }, { destination: '::/0' }];
  const config = (): VfConfig => ({ interfaceName: 'eth0', ipam: bench.ipam(), routes });

  it('has the VF as eth0 with both default routes, also in its next sandbox', async () => {
    bench.createVf(1);
    bench.prepare('c', [{ index: 1, config: config() }]);
    for (const sandbox of ['sandbox1', 'sandbox2']) {
      const pod = bench.newPod();
      const [state] = await bench.attach('c', pod, sandbox);
      expect(state).toMatchObject({ interfaceName: 'eth0', ips: [expect.stringMatching(/^10\.89\.7\.1\d\/24$/)] });
      expect(pod.ip('route', 'show', 'default')).toMatchObject([{ gateway: '10.89.7.1', dev: 'eth0' }]);
      expect(pod.ip('-6', 'route', 'show', 'default')).toMatchObject([{ dev: 'eth0' }]);
    }
    await bench.detach('c');
    expect(links()).toContain('vf1');
    expect(bench.leases()).toEqual([]);
  });
});

describe('a VF that an earlier attempt moved to its pod', () => {
  const leaveDownAs = async (name: string) => {
    bench.createVf(1);
    bench.prepare('c', [{ index: 1, config: { interfaceName: 'fast0' } }]);
    const pod = bench.newPod();
    await bench.attach('c', pod);
    pod.ip('link', 'set', 'fast0', 'down');
    pod.ip('link', 'set', 'fast0', 'name', name);
    return pod;
  };

  it('gets the name that its claim requests if the earlier attempt did not rename it', async () => {
    // As the kernel leaves a link whose new name another one took during the move.
    const pod = await leaveDownAs('vf1');
    expect(await bench.attach('c', pod)).toMatchObject([{ interfaceName: 'fast0' }]);
    expect(inPod(pod)).toMatchObject([{ ifname: 'fast0' }]);
  });

  it('keeps the name that its pod has given it, even if its link is down', async () => {
    const pod = await leaveDownAs('mine');
    expect(await bench.attach('c', pod)).toMatchObject([{ interfaceName: 'mine' }]);
  });
});

it('a VF that lost its kernel driver in a card reset is configured again before attaching', async () => {
  bench.isUnbound = true;
  bench.prepare('c', [{ index: 1, config: { interfaceName: 'net1' } }]);
  const states = await bench.attach('c', bench.newPod(), 'sandbox1', 'pod-uid', async () => bench.createVf(1));
  expect(states).toMatchObject([{ interfaceName: 'net1' }]);
});

it('a route that the pod removed is reported as a difference, except at the first reading', async () => {
  bench.createVf(1);
  const routes = [{ destination: '198.51.100.0/24' }];
  bench.prepare('c', [{ index: 1, config: { interfaceName: 'net1', addresses: ['192.0.2.10/24'], routes } }]);
  const pod = bench.newPod();
  await bench.attach('c', pod);
  pod.exec('ip', 'route', 'del', '198.51.100.0/24');
  const [first] = await bench.read('c', pod);
  expect(first).toMatchObject({ interfaceName: 'net1' });
  expect(first?.differences).toBeUndefined();
  expect(await bench.read('c', pod, { interfaceName: 'net1' })).toMatchObject([
    { differences: [{ setting: 'routes', wanted: '198.51.100.0/24', found: 'missing' }] },
  ]);
});

describe('a VF with ethtool settings', () => {
  const ethtool = { features: { 'rx-gro': true }, channels: { tx: 1 } };

  it("has the claim's settings in its pod, is reported if they change, and has its original settings afterwards", async () => {
    bench.createVf(1);
    const before = await bench.ethtool('vf1');
    expect(before).toMatchObject({ features: { 'rx-gro': false }, channels: { tx: 2 } });
    bench.prepare('c', [{ index: 1, config: { interfaceName: 'net1', ethtool } }]);
    const pod = bench.newPod();
    await bench.attach('c', pod);
    expect(await bench.ethtool('net1', pod)).toMatchObject(ethtool);
    await bench.setFeature('net1', 'rx-gro', false, pod);
    expect(await bench.read('c', pod, { interfaceName: 'net1' })).toMatchObject([
      { differences: [{ setting: 'ethtool', wanted: 'features.rx-gro=true', found: 'features.rx-gro=false' }] },
    ]);
    await bench.detach('c');
    expect(await bench.ethtool('vf1')).toEqual(before);
  });

  it('is not attached if its driver rejects a setting, and has its original settings afterwards', async () => {
    bench.createVf(1);
    const before = await bench.ethtool('vf1');
    const refused = { ...ethtool, features: { 'hw-tc-offload': true } };
    bench.prepare('c', [{ index: 1, config: { interfaceName: 'net1', ethtool: refused } }]);
    const pod = bench.newPod();
    await expect(bench.attach('c', pod)).rejects.toThrow('did not set hw-tc-offload to true: it is still false');
    expect(await bench.ethtool('net1', pod)).toMatchObject({ channels: { tx: 1 } });
    await bench.detach('c');
    expect(await bench.ethtool('vf1')).toEqual(before);
  });
});
