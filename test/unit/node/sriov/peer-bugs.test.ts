import { rmSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { layFunction, type TreeFunction } from './pci-tree.ts';
import { TestNode } from './test-node.ts';
import { igbTree } from './trees/igb.ts';
import { mlx5Tree } from './trees/mlx5.ts';

/** What other drivers were found to do wrong in discovery, each as what netdra does instead. */
describe('discovery where other drivers have bugs', () => {
  it('sees VFs appear and vanish without a restart', async () => {
    using node = new TestNode(igbTree);
    const inventory = node.inventory();
    const count = async () => (await inventory.scan()).devices.length;
    const [pf] = igbTree as [TreeFunction];
    const above = join(node.root, 'devices', pf.above!);
    expect(await count()).toBe(6);
    // sriov_numvfs: 0, then 2
    for (const [index, vf] of pf.vfs!.entries()) {
      rmSync(join(node.root, 'bus/pci/devices', vf.pciAddress));
      rmSync(join(above, vf.pciAddress), { recursive: true });
      rmSync(join(above, pf.pciAddress, `virtfn${index}`));
    }
    expect(await count()).toBe(3);
    for (const [index, vf] of pf.vfs!.slice(0, 2).entries()) {
      rmSync(join(node.root, 'kernel/iommu_groups', vf.iommuGroup!), { recursive: true });
      layFunction(node.root, { ...vf, above: pf.above!, iommuGroup: String(70 + index) });
      symlinkSync(`../${pf.pciAddress}`, join(above, vf.pciAddress, 'physfn'));
      symlinkSync(`../${vf.pciAddress}`, join(above, pf.pciAddress, `virtfn${index}`));
    }
    const { devices } = await inventory.scan();
    expect(devices).toHaveLength(5);
    // Made anew, with groups of other numbers.
    expect(devices[0]).toMatchObject({ pciAddress: '0000:01:10.0', iommuGroup: '70' });
  });

  it('reads RDMA on each scan, not only at startup', async () => {
    using node = new TestNode(mlx5Tree);
    const inventory = node.inventory();
    await inventory.scan();
    rmSync(join(node.root, 'class/infiniband/mlx5_2'));
    const device = (await inventory.scan()).devices.find(({ pciAddress }) => pciAddress === '0000:08:00.2');
    expect(device?.rdmaDevices).toEqual([]);
  });
});
