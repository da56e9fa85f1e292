import type { TreeFunction } from '../pci-tree.ts';

/**
 * NVIDIA ConnectX-6 Dx in switchdev mode: VFs begin right behind the two ports (offset 2), and the representors, which
 * the kernel lists below the PF, come before the uplink by name. RDMA on the PF and on kernel-bound VFs.
 */
const ethernet: TreeFunction = {
  pciAddress: '0000:08:00.0',
  above: 'pci0000:00/0000:00:01.0',
  vendor: '0x15b3',
  device: '0x101d',
  driver: 'mlx5_core',
  numaNode: '0',
  iommuGroup: '40',
  interfaces: [
    { name: 'enp8s0f0_0', address: '1a:00:00:00:00:f0', portName: 'pf0vf0' },
    { name: 'enp8s0f0_1', address: '1a:00:00:00:00:f1', portName: 'c1pf0vf1' },
    { name: 'enp8s0f0np0', address: '0c:42:a1:00:00:08', portName: 'p0', speed: '25000' },
  ],
  rdmaDevices: ['mlx5_0'],
  totalVfs: 8,
  vfs: [
    {
      driver: 'mlx5_core',
      interfaces: [{ name: 'enp8s0f0v0', address: '02:00:00:08:00:00' }],
      rdmaDevices: ['mlx5_2'],
    },
    // Handed over for DPDK: neither interface nor RDMA device is left.
    { driver: 'vfio-pci' },
  ].map((vf, index) => ({
    pciAddress: `0000:08:00.${2 + index}`,
    vendor: '0x15b3',
    device: '0x101e',
    numaNode: '0',
    iommuGroup: String(41 + index),
    ...vf,
  })),
};

/** ConnectX-6 VPI with an InfiniBand port: another PCI class, 20-octet addresses, interfaces by IPoIB. */
const infiniband: TreeFunction = {
  pciAddress: '0000:5e:00.0',
  above: 'pci0000:5d/0000:5d:00.0',
  vendor: '0x15b3',
  device: '0x101b',
  class: '0x020700',
  driver: 'mlx5_core',
  numaNode: '1',
  iommuGroup: '60',
  interfaces: [
    {
      name: 'ibp94s0f0',
      address: '00:00:10:29:fe:80:00:00:00:00:00:00:0c:42:a1:03:00:5e:00:00',
      mtu: 2044,
      type: '32',
      speed: '200000',
    },
  ],
  rdmaDevices: ['mlx5_1'],
  totalVfs: 4,
  vfs: [
    {
      pciAddress: '0000:5e:00.1',
      vendor: '0x15b3',
      device: '0x101c',
      class: '0x020700',
      driver: 'mlx5_core',
      numaNode: '1',
      iommuGroup: '61',
      interfaces: [
        {
          name: 'ibp94s0f0v0',
          address: '00:00:00:e7:fe:80:00:00:00:00:00:00:00:00:00:00:00:00:00:00',
          mtu: 2044,
          type: '32',
        },
      ],
      rdmaDevices: ['mlx5_3'],
    },
  ],
};

export const mlx5Tree: TreeFunction[] = [ethernet, infiniband];
