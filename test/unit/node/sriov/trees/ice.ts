import type { TreeFunction } from '../pci-tree.ts';

/** Intel E810-C: named ports, RDMA (irdma) on the PF only; VFs kernel-bound, for DPDK, and without any driver. */
export const iceTree: TreeFunction[] = [
  {
    pciAddress: '0000:17:00.0',
    above: 'pci0000:16/0000:16:02.0',
    vendor: '0x8086',
    device: '0x1592',
    driver: 'ice',
    numaNode: '1',
    iommuGroup: '72',
    interfaces: [{ name: 'ens785f0np0', address: 'b4:96:91:00:00:10', mtu: 9000, portName: 'p0', speed: '100000' }],
    rdmaDevices: ['irdma0'],
    totalVfs: 128,
    vfs: [
      { driver: 'iavf', interfaces: [{ name: 'ens785f0v0', address: '02:00:00:17:00:00', mtu: 9000 }] },
      { driver: 'vfio-pci' },
      {},
    ].map((vf, index) => ({
      pciAddress: `0000:17:01.${index}`,
      vendor: '0x8086',
      device: '0x1889',
      numaNode: '1',
      iommuGroup: String(190 + index),
      ...vf,
    })),
  },
];
