import type { TreeFunction } from '../pci-tree.ts';

/** A PF that is in user space itself (vfio-pci with `enable_sriov`): no interface, so nothing to ask about its VFs. */
export const withoutNetdevTree: TreeFunction[] = [
  {
    pciAddress: '0000:af:00.0',
    above: 'pci0000:ae/0000:ae:00.0',
    vendor: '0x8086',
    device: '0x1572',
    driver: 'vfio-pci',
    numaNode: '1',
    iommuGroup: '90',
    totalVfs: 64,
    vfs: [
      { driver: 'vfio-pci' },
      { driver: 'iavf', interfaces: [{ name: 'ens8v1', address: '02:00:00:af:00:01', speed: '10000' }] },
    ].map((vf, index) => ({
      pciAddress: `0000:af:02.${index}`,
      vendor: '0x8086',
      device: '0x154c',
      numaNode: '1',
      iommuGroup: String(91 + index),
      ...vf,
    })),
  },
];
