import type { TreeFunction } from '../pci-tree.ts';

/** Intel 82599: one port up, one without cable (speed -1); no ACS on the way up, so all is one IOMMU group. */
export const ixgbeTree: TreeFunction[] = [
  {
    pciAddress: '0000:00:03.0',
    above: 'pci0000:00',
    vendor: '0x8086',
    device: '0x6f08',
    class: '0x060400',
    driver: 'pcieport',
    iommuGroup: '30',
  },
  ...[0, 1].map((port) => ({
    pciAddress: `0000:05:00.${port}`,
    above: 'pci0000:00/0000:00:03.0',
    vendor: '0x8086',
    device: '0x10fb',
    driver: 'ixgbe',
    numaNode: '0',
    iommuGroup: '30',
    interfaces: [{ name: `eno${port + 1}`, address: `a0:36:9f:00:00:0${port}`, speed: port === 0 ? '10000' : '-1' }],
    totalVfs: 63,
    vfs: [0, 1].map((vf) => ({
      pciAddress: `0000:05:10.${2 * vf + port}`,
      vendor: '0x8086',
      device: '0x10ed',
      driver: 'ixgbevf',
      numaNode: '0',
      iommuGroup: '30',
      interfaces: [{ name: `eno${port + 1}v${vf}`, address: `02:09:c0:0${port}:00:0${vf}` }],
    })),
  })),
];
