import type { Device } from '../../../src/framework/resourceslice/index.ts';
import { deviceAttributes } from '../../../src/node/inventory/index.ts';
import { TestNode } from '../../../test/unit/node/sriov/test-node.ts';

/**
 * The devices of a node whose card has this many VFs, as discovery finds them in sysfs: with all attributes that a VF
 * of a real card has, so that slices are as large as real ones.
 */
export async function discoverVfs(count: number): Promise<Device[]> {
  const hex = (value: number) => value.toString(16).padStart(2, '0');
  using node = new TestNode([
    {
      pciAddress: '0000:3b:00.0',
      above: 'pci0000:3a/0000:3a:00.0',
      ...{ vendor: '0x15b3', device: '0x101d', driver: 'mlx5_core', numaNode: '0', iommuGroup: '40' },
      interfaces: [{ name: 'ens1f0np0', address: '0c:42:a1:00:00:08', portName: 'p0', speed: '100000' }],
      rdmaDevices: ['mlx5_0'],
      totalVfs: count,
      vfs: Array.from({ length: count }, (_, index) => ({
        pciAddress: `0000:3b:${hex(2 + Math.floor(index / 8))}.${index % 8}`,
        ...{ vendor: '0x15b3', device: '0x101e', driver: 'mlx5_core', numaNode: '0', iommuGroup: String(41 + index) },
        interfaces: [{ name: `ens1f0v${index}`, address: `02:00:00:3b:02:${hex(index)}` }],
        rdmaDevices: [`mlx5_${2 + index}`],
      })),
    },
  ]);
  const { devices } = await node.inventory().scan();
  return devices.map((device) => ({ name: device.name, attributes: deviceAttributes(device) }));
}
