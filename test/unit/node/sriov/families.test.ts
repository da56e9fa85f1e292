import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { layFile } from './pci-tree.ts';
import { TestNode } from './test-node.ts';
import { iceTree } from './trees/ice.ts';
import { igbTree } from './trees/igb.ts';
import { ixgbeTree } from './trees/ixgbe.ts';
import { mlx5Tree } from './trees/mlx5.ts';
import { virtioTree } from './trees/virtio.ts';
import { withoutNetdevTree } from './trees/without-netdev.ts';

describe('discovery on NIC families', () => {
  it('igb: numbers VFs alternately between two ports, and gives each VF its own IOMMU group', async () => {
    using node = new TestNode(igbTree);
    const found = await node.attributes();
    expect(Object.keys(found)).toEqual([0, 1, 2, 3, 4, 5].map((fn) => `0000:01:10.${fn}`));
    expect(found['0000:01:10.3']).toEqual({
      'resource.kubernetes.io/pciBusID': '0000:01:10.3',
      'resource.kubernetes.io/pcieRoot': 'pci0000:00',
      'k8s.cni.cncf.io/deviceID': '0000:01:10.3',
      kind: 'vf',
      pciAddress: '0000:01:10.3',
      pfPciAddress: '0000:01:00.1',
      pfName: 'enp1s0f1',
      vfIndex: 1,
      vendor: '8086',
      device: '10ca',
      driver: 'igbvf',
      iommuGroup: '13',
      iommuGroupShared: false,
      mac: '52:54:00:11:00:01',
      mtu: 1500,
      linkType: 'ethernet',
      linkSpeed: 1000,
      eswitchMode: 'legacy',
      rdma: false,
      rdmaDevice: '',
      rdmaNetnsMode: '',
      simulated: false,
    });
  });

  it('ixgbe: reports no speed of a port without a cable, and one IOMMU group for all functions', async () => {
    using node = new TestNode(ixgbeTree);
    const found = await node.attributes();
    expect(Object.keys(found)).toEqual(['0000:05:10.0', '0000:05:10.1', '0000:05:10.2', '0000:05:10.3']);
    expect(Object.values(found).map(({ linkSpeed }) => linkSpeed)).toEqual([10_000, 0, 10_000, 0]);
    const { devices } = await node.inventory().scan();
    // The bridge above is in the group too, but needs no vfio driver.
    expect(devices[0]?.iommuPeers).toEqual([
      '0000:05:00.0',
      '0000:05:00.1',
      '0000:05:10.1',
      '0000:05:10.2',
      '0000:05:10.3',
    ]);
    expect(found['0000:05:10.0']).toMatchObject({ driver: 'ixgbevf', device: '10ed', iommuGroupShared: true });
  });

  it('ice: reports the driver of each VF, and no RDMA on VFs', async () => {
    using node = new TestNode(iceTree);
    node.vfInfos.ens785f0np0 = [{ vfIndex: 0 }, { vfIndex: 1, hardwareAddress: '02:00:00:17:00:01' }, { vfIndex: 2 }];
    const found = await node.attributes();
    const port = { linkType: 'ethernet', linkSpeed: 100_000, pfName: 'ens785f0np0', eswitchMode: 'legacy' };
    const common = { ...port, vendor: '8086', device: '1889', rdma: false, 'resource.kubernetes.io/numaNode': 1 };
    expect(found).toMatchObject({
      '0000:17:01.0': { ...common, driver: 'iavf', mac: '02:00:00:17:00:00', mtu: 9000 },
      '0000:17:01.1': { ...common, driver: 'vfio-pci', mac: '02:00:00:17:00:01', mtu: 0 },
      '0000:17:01.2': { ...common, driver: '', mac: '', mtu: 0 },
    });
  });

  it('mlx5: distinguishes representors from the PF in switchdev mode, and reports RDMA and InfiniBand', async () => {
    using node = new TestNode(mlx5Tree);
    layFile(join(node.root, 'module/ib_core/parameters/netns_mode'), 'N');
    const found = await node.attributes();
    expect(found).toMatchObject({
      '0000:08:00.2': {
        vendor: '15b3',
        device: '101e',
        driver: 'mlx5_core',
        pfName: 'enp8s0f0np0',
        eswitchMode: 'switchdev',
        linkType: 'ethernet',
        linkSpeed: 25_000,
        rdma: true,
        rdmaDevice: 'mlx5_2',
        rdmaNetnsMode: 'exclusive',
        mac: '02:00:00:08:00:00',
      },
      '0000:08:00.3': { driver: 'vfio-pci', eswitchMode: 'switchdev', rdma: false, rdmaNetnsMode: '', mac: '' },
      '0000:5e:00.1': {
        device: '101c',
        pfName: 'ibp94s0f0',
        eswitchMode: 'legacy',
        linkType: 'infiniband',
        linkSpeed: 200_000,
        rdma: true,
        rdmaDevice: 'mlx5_3',
        mac: '00:00:00:e7:fe:80:00:00:00:00:00:00:00:00:00:00:00:00:00:00',
        mtu: 2044,
      },
    });
    expect(Object.keys(found)).toHaveLength(3);
  });

  it('virtio: never offers a NIC, not even on request', async () => {
    using node = new TestNode([...virtioTree, ...igbTree]);
    const report = await node.inventory({ nics: [{ select: { vendor: '1af4' } }] }).scan();
    expect(report.devices.map(({ vendor }) => vendor)).toEqual(Array(6).fill('8086'));
    expect(report.excluded).toEqual([
      { pciAddress: '0000:00:19.0', reason: 'virtio' },
      { pciAddress: '0000:00:1a.0', reason: 'virtio' },
    ]);
    expect((await node.inventory().scan()).excluded).toEqual([]);
  });

  it('a PF without an interface: offers the VFs with their own attributes', async () => {
    using node = new TestNode(withoutNetdevTree);
    const found = await node.attributes();
    const unknown = { pfName: '', eswitchMode: '', pfPciAddress: '0000:af:00.0' };
    expect(found).toMatchObject({
      '0000:af:02.0': { ...unknown, vfIndex: 0, mac: '', linkType: '', linkSpeed: 0 },
      '0000:af:02.1': { ...unknown, vfIndex: 1, mac: '02:00:00:af:00:01', linkType: 'ethernet', linkSpeed: 10_000 },
    });
    expect(node.vfInfoRequests).toBe(0);
  });
});
