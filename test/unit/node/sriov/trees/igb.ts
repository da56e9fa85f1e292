import type { TreeFunction } from '../pci-tree.ts';

/**
 * Intel 82576, as QEMU emulates it too: two ports of 1 Gbit/s, VFs of both interleaved behind bus 01 (offset 128,
 * stride 2), each in an IOMMU group of its own. The driver names no ports, and there is no RDMA.
 */
export const igbTree: TreeFunction[] = [0, 1].map((port) => ({
  pciAddress: `0000:01:00.${port}`,
  above: 'pci0000:00/0000:00:02.0',
  vendor: '0x8086',
  device: '0x10c9',
  driver: 'igb',
  numaNode: '-1',
  iommuGroup: String(8 + port),
  interfaces: [{ name: `enp1s0f${port}`, address: `52:54:00:00:01:0${port}`, speed: '1000' }],
  totalVfs: 7,
  vfs: [0, 1, 2].map((vf) => ({
    pciAddress: `0000:01:10.${2 * vf + port}`,
    vendor: '0x8086',
    device: '0x10ca',
    driver: 'igbvf',
    numaNode: '-1',
    iommuGroup: String(10 + 2 * vf + port),
    interfaces: [{ name: `enp1s0f${port}v${vf}`, address: `52:54:00:1${port}:00:0${vf}` }],
  })),
}));
