import { rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { layFunction, type TreeFunction } from './pci-tree.ts';
import { TestNode } from './test-node.ts';
import { iceTree } from './trees/ice.ts';
import { igbTree } from './trees/igb.ts';
import { mlx5Tree } from './trees/mlx5.ts';

/** What other drivers were found to do wrong in discovery, each as what netdra does instead. */
describe('discovery, where other drivers fail', () => {
  it('a failing card does not fail the whole discovery', async () => {
    using node = new TestNode([...igbTree, ...iceTree]);
    writeFileSync(join(node.root, 'bus/pci/devices/0000:17:00.0/sriov_totalvfs'), 'x');
    expect(await node.offered()).toHaveLength(6);
  });

  it('devices come in one order, whatever the order of directories, so that slices stay as they are', async () => {
    using forward = new TestNode([...igbTree, ...mlx5Tree]);
    using backward = new TestNode([...igbTree, ...mlx5Tree].reverse());
    expect(await backward.offered()).toEqual(await forward.offered());
  });

  it('VFs that appear and vanish are seen without a restart', async () => {
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

  it('cards that appear are seen without a restart', async () => {
    using node = new TestNode(igbTree);
    const inventory = node.inventory();
    await inventory.scan();
    for (const each of iceTree) layFunction(node.root, each);
    expect((await inventory.scan()).devices).toHaveLength(9);
  });

  it('RDMA is looked at anew in each scan, not at the start only', async () => {
    using node = new TestNode(mlx5Tree);
    const inventory = node.inventory();
    await inventory.scan();
    rmSync(join(node.root, 'class/infiniband/mlx5_2'));
    const device = (await inventory.scan()).devices.find(({ pciAddress }) => pciAddress === '0000:08:00.2');
    expect(device?.rdmaDevices).toEqual([]);
  });

  it('a PF whose interface is in another namespace, or that tells nothing of a VF, hides no VF', async () => {
    using node = new TestNode(iceTree);
    node.vfInfos.ens785f0np0 = [];
    expect(await node.offered()).toHaveLength(3);
    node.takeAway('ens785f0np0');
    rmSync(join(node.root, 'bus/pci/devices/0000:17:00.0/net'), { recursive: true });
    expect(await node.offered()).toHaveLength(3);
  });

  it('the link type is that of the port, never "unknown" for a VF whose interface is away', async () => {
    using node = new TestNode(iceTree);
    node.takeAway('ens785f0v0');
    const types = Object.values(await node.attributes()).map(({ linkType }) => linkType);
    expect(types).toEqual(['ethernet', 'ethernet', 'ethernet']);
  });

  it('representors in a bridge say nothing about the VFs, and the first of them is not taken for the PF', async () => {
    using node = new TestNode(mlx5Tree);
    node.addLink(51, 'ovs-system', { kind: 'openvswitch' });
    node.change('enp8s0f0_0', { master: 51 });
    const found = await node.attributes();
    expect(found['0000:08:00.2']).toMatchObject({ pfName: 'enp8s0f0np0' });
  });
});
