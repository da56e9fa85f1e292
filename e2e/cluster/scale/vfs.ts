import type { Device } from '../../../src/framework/resourceslice/index.ts';
import { deviceAttributes } from '../../../src/node/inventory/index.ts';
import { TestNode } from '../../../test/unit/node/sriov/test-node.ts';

/** A node with a card of two ports that have so many VFs together, with all that sysfs shows of a real card. */
export function cardNode(count: number): TestNode {
  const hex = (value: number) => value.toString(16).padStart(2, '0');
  const first = Math.ceil(count / 2);
  const port = (at: number, vfs: number) => ({
    pciAddress: `0000:3b:00.${at}`,
    above: 'pci0000:3a/0000:3a:00.0',
    vendor: '0x15b3',
    device: '0x101d',
    driver: 'mlx5_core',
    numaNode: '0',
    iommuGroup: String(40 + at),
    interfaces: [
      { name: `ens1f${at}np${at}`, address: `0c:42:a1:00:00:0${8 + at}`, portName: `p${at}`, speed: '100000' },
    ],
    rdmaDevices: [`mlx5_${at}`],
    totalVfs: vfs,
    vfs: Array.from({ length: vfs }, (_, index) => ({
      pciAddress: `0000:3b:${hex(2 + Math.floor((at * first + index) / 8))}.${(at * first + index) % 8}`,
      vendor: '0x15b3',
      device: '0x101e',
      driver: 'mlx5_core',
      numaNode: '0',
      iommuGroup: String(42 + at * first + index),
      interfaces: [{ name: `ens1f${at}v${index}`, address: `02:00:00:3b:0${2 + at}:${hex(index)}` }],
      rdmaDevices: [`mlx5_${2 + at * first + index}`],
    })),
  });
  return new TestNode([port(0, first), port(1, count - first)]);
}

/** The devices of such a node, as discovery finds them, so that slices are as large as real ones. */
export async function discoverVfs(count: number): Promise<Device[]> {
  using node = cardNode(count);
  const { devices } = await node.inventory().scan();
  return devices.map((device) => ({ name: device.name, attributes: deviceAttributes(device) }));
}
