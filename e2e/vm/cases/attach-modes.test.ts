import { readdirSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect } from 'vitest';
import { findForeignPlugin } from '../../node/foreign-cni.ts';
import { delegatedInterface } from '../multus-stand-in.ts';
import { classConfig, vfConfig } from '../vf-config.ts';
import { hostVfStates, linkOf, networkDataOf, vfAt } from '../vfs.ts';
import { it } from '../vm-test.ts';

describe('a VF attached by another component', () => {
  it('is attached and returned by the CNI plugin host-device', async ({ node, vfs, onTestFinished }) => {
    const vf = vfAt(vfs, 'pf0', 2);
    const dataDir = node.createFolder('leases');
    /** Files that are named after an address. */
    const leases = () =>
      readdirSync(dataDir, { recursive: true, encoding: 'utf8' }).filter((path) => /\/198[\d.]+$/.test(path));
    onTestFinished(() => expect(leases()).toEqual([]));
    const ipam = { type: 'host-local', dataDir, ranges: [[{ subnet: '198.18.7.0/24' }]] };
    const cni = { cniVersion: '1.0.0', name: 'fast', type: 'host-device', ipam };
    const running = await node.startPod('by-cni', vf, [
      classConfig({ attach: 'cni', cni, vf: { vlan: 7 } }),
      vfConfig({ interfaceName: 'net1' }),
    ]);
    const link = linkOf(vf, running.sandbox.netnsPath);
    expect(link).toMatchObject({ ifname: 'net1', address: vf.address });
    const { devices } = await node.metadataOnHost(running);
    expect(devices.map(({ networkData }) => networkData)).toEqual([networkDataOf(link!)]);
    expect(devices[0]?.networkData?.ips).toEqual([expect.stringMatching(/^198\.18\.7\.\d+\/24$/)]);
    expect(leases()).toHaveLength(1);
    await node.bench.endSandboxes(running.pod);
    // Removed before unprepare, by the stop hook.
    expect(leases()).toEqual([]);
    expect(linkOf(vf)).toMatchObject({ ifname: vf.name });
    await node.bench.endPod(running.pod);
    expect(hostVfStates()).toEqual(vfs);
  });

  it('is attached and returned by sriov-cni', async ({ node, vfs, skip }) => {
    const sriov = findForeignPlugin('sriov', process.env);
    if ('missing' in sriov) return skip(sriov.missing);
    symlinkSync(sriov.path, join(node.multus.binDir, 'sriov'));
    const vf = vfAt(vfs, 'pf0', 3);
    const ipam = { type: 'static', addresses: [{ address: '192.0.2.78/24' }] };
    const cni = { cniVersion: '1.0.0', name: 'fast', type: 'sriov', ipam };
    const config = [classConfig({ attach: 'cni', cni }), vfConfig({ interfaceName: 'net1' })];
    const running = await node.startPod('by-sriov-cni', vf, config);
    const link = linkOf(vf, running.sandbox.netnsPath);
    expect(link).toMatchObject({ ifname: 'net1' });
    const { devices } = await node.metadataOnHost(running);
    expect(devices.map(({ networkData }) => networkData)).toEqual([networkDataOf(link!)]);
    expect(devices[0]?.networkData?.ips).toEqual(['192.0.2.78/24']);
    await node.bench.endPod(running.pod);
    expect(hostVfStates()).toEqual(vfs);
  });

  it('is reported, but not moved, if a network plugin has moved it into the pod before the driver', async ({
    node,
    vfs,
  }) => {
    const vf = vfAt(vfs, 'pf1', 3);
    node.multus.attach('observed', vf.pciAddress, '192.0.2.77/24');
    const running = await node.startPod('observed', vf, [vfConfig({ attach: 'observe' })]);
    const link = linkOf(vf, running.sandbox.netnsPath);
    expect(link).toMatchObject({ ifname: delegatedInterface, address: vf.address });
    const { devices } = await node.metadataOnHost(running);
    expect(devices.map(({ networkData }) => networkData)).toEqual([networkDataOf(link!)]);
    expect(devices[0]?.networkData?.ips).toEqual(['192.0.2.77/24']);
    await node.bench.endPod(running.pod);
    expect(hostVfStates()).toEqual(vfs);
  });
});
