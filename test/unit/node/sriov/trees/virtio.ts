import type { TreeFunction } from '../pci-tree.ts';

/** What a virtual machine has for its own network: a transitional device, and a modern one. No SR-IOV, no IOMMU. */
export const virtioTree: TreeFunction[] = [
  { pciAddress: '0000:00:19.0', device: '0x1000', busDevice: 'virtio0', interfaces: [{ name: 'eth0', speed: '-1' }] },
  { pciAddress: '0000:00:1a.0', device: '0x1041', busDevice: 'virtio1', interfaces: [{ name: 'eth1', speed: '-1' }] },
].map((each) => ({ above: 'pci0000:00', vendor: '0x1af4', driver: 'virtio-pci', numaNode: '-1', ...each }));
