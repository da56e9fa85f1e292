import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { explain } from '../../../../src/lib/errors.ts';
import { DeviceNodes, SimulatedControl } from '../../../../src/node/sriov/index.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';

const vf = '0000:3b:02.1';
let dir: ReturnType<typeof tempDir>;
let nodes: DeviceNodes;
beforeEach(() => {
  dir = tempDir();
  nodes = new DeviceNodes(dir.path);
});
afterEach(() => dir[Symbol.dispose]());

function write(path: string, text: string): void {
  mkdirSync(dirname(join(dir.path, path)), { recursive: true });
  writeFileSync(join(dir.path, path), text);
}

const device = (path: string, name: string) => write(`${path}/uevent`, `MAJOR=231\nMINOR=195\nDEVNAME=${name}\n`);
const failure = (task: Promise<unknown>) => task.then(() => 'nothing failed', explain);

/** What mlx5 has below a VF. */
function addRdma(): void {
  const pci = `bus/pci/devices/${vf}`;
  write(`${pci}/infiniband/mlx5_3/node_type`, '1: CA\n');
  device(`${pci}/infiniband_verbs/uverbs3`, 'infiniband/uverbs3');
  device(`${pci}/infiniband_mad/umad3`, 'infiniband/umad3');
  device(`${pci}/infiniband_mad/issm3`, 'infiniband/issm3');
}

describe('DeviceNodes.rdma', () => {
  it('returns verbs and the connection manager, without management or subnet devices', async () => {
    addRdma();
    expect(await nodes.rdma(vf)).toEqual({
      device: 'mlx5_3',
      nodes: ['/dev/infiniband/uverbs3'],
    });
    device('class/misc/rdma_cm', 'infiniband/rdma_cm');
    expect((await nodes.rdma(vf)).nodes).toEqual(['/dev/infiniband/uverbs3', '/dev/infiniband/rdma_cm']);
  });

  it('names what is missing: the RDMA device, or the kernel module for its verbs', async () => {
    expect(await failure(nodes.rdma(vf))).toBe(
      '0000:3b:02.1 has no RDMA device (load the RDMA driver of the card, such as mlx5_ib)',
    );
    write(`bus/pci/devices/${vf}/infiniband/mlx5_3/node_type`, '1: CA\n');
    expect(await failure(nodes.rdma(vf))).toBe(
      '0000:3b:02.1 has the RDMA device mlx5_3, but no verbs for it (modprobe ib_uverbs)',
    );
  });

  it('fails if RDMA devices are in exclusive mode, since containers would see no verbs device', async () => {
    addRdma();
    write('module/ib_core/parameters/netns_mode', 'Y\n');
    expect(await nodes.rdma(vf)).toMatchObject({ device: 'mlx5_3' });
    write('module/ib_core/parameters/netns_mode', 'N\n');
    expect(await failure(nodes.rdma(vf))).toMatch(/mlx5_3 .* is visible in one network namespace only, .*netns_mode=1/);
  });

  it('fails for a device without a node GUID, which the connection manager skips', async () => {
    addRdma();
    const path = `bus/pci/devices/${vf}/infiniband/mlx5_3/node_guid`;
    write(path, '0c42:a103:0065:e2f0\n');
    expect(await nodes.rdma(vf)).toMatchObject({ device: 'mlx5_3' });
    write(path, '0000:0000:0000:0000\n');
    expect(await failure(nodes.rdma(vf))).toMatch(/mlx5_3 .* has the node GUID 0000:0000:0000:0000 \(Ethernet: /);
  });
});

describe('DeviceNodes.vhost', () => {
  it('names the module of each missing device', async () => {
    expect(await failure(nodes.vhost())).toBe(
      'this node has no device file for vhost-net and tun (modprobe vhost_net tun)',
    );
    device('class/misc/tun', 'net/tun');
    expect(await failure(nodes.vhost())).toBe('this node has no device file for vhost-net (modprobe vhost_net)');
  });

  it('returns the same nodes for simulated VFs, which have no RDMA', async () => {
    device('class/misc/vhost-net', 'vhost-net');
    device('class/misc/tun', 'net/tun');
    const control = new SimulatedControl(nodes);
    const address = { pciAddress: 'fe00:00:02.0' };
    expect(await control.access(address, { vhost: true, rdma: false })).toEqual({
      nodes: ['/dev/vhost-net', '/dev/net/tun'],
    });
    expect(await control.access(address, { vhost: false, rdma: false })).toEqual({ nodes: [] });
    expect(await failure(control.access(address, { vhost: false, rdma: true }))).toMatch(/cannot have an RDMA device/);
  });
});

it('DeviceNodes.vfio reports a VF without a device file for vfio, and returns the device files on kernels without VFIO groups', async () => {
  write('kernel/iommu_groups/42/name', 'DMA\n');
  write(`bus/pci/devices/${vf}/class`, '0x020000\n');
  expect(await failure(nodes.vfio(vf))).toMatch(/0000:3b:02\.1 has no device file for vfio/);
  symlinkSync('../../../../kernel/iommu_groups/42', join(dir.path, `bus/pci/devices/${vf}/iommu_group`));
  expect(await failure(nodes.vfio(vf))).toMatch(/0000:3b:02\.1 has no device file for vfio/);
  device(`bus/pci/devices/${vf}/vfio-dev/vfio0`, 'vfio/devices/vfio0');
  device('class/misc/iommu', 'iommu');
  expect(await nodes.vfio(vf)).toEqual({
    device: '/dev/vfio/devices/vfio0',
    iommuGroup: '42',
    nodes: ['/dev/vfio/devices/vfio0', '/dev/iommu'],
  });
});
