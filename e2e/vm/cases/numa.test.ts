import { describe, expect } from 'vitest';
import { exec, runContainer } from '../../node/pod.ts';
import { vfConfig } from '../vf-config.ts';
import { type VfState, vfAt } from '../vfs.ts';
import { deviceName, readMetadata, type VmNode } from '../vm-node.ts';
import { it } from '../vm-test.ts';

type Numa = 'report' | 'require';

/** A pod whose container has the CPU and the memory of a NUMA node, each of which has one CPU. @returns its metadata */
async function startPinned(
  node: VmNode,
  name: string,
  vf: VfState,
  numa: Numa,
  numaNode: number,
  memoryNode = numaNode,
) {
  const { bench } = node;
  const pod = node.createPod(name, vf, [vfConfig({ numa })]);
  const sandbox = await bench.startPod(pod);
  const { cri } = bench.containerd;
  const cdiDevices = bench.kubelet.cdiDevicesForContainer(pod, 'main');
  const id = await runContainer(cri, sandbox, { name: 'main', cdiDevices, pinned: { cpu: numaNode, memoryNode } });
  const container = { id, exec: (...command: string[]) => exec(cri, id, command) };
  const { stdout } = await container.exec('grep', '_allowed_list', '/proc/self/status');
  expect(stdout.match(/\S+$/gm)).toEqual([`${numaNode}`, `${memoryNode}`]);
  const [device] = (await readMetadata({ pod, sandbox, container })).devices;
  return device?.attributes;
}

describe('a container with a CPU and memory of its own', () => {
  it('starts on the NUMA node of its VF, and finds that in its metadata', async ({ node, vfs }) => {
    for (const [index, pf] of ['pf0', 'pf1'].entries()) {
      expect(await startPinned(node, `near-${index}`, vfAt(vfs, pf, 5), 'require', index)).toMatchObject({
        'resource.kubernetes.io/numaNode': { int: index },
        numaAligned: { bool: true },
      });
    }
  });

  it('is refused on the other node, whether its CPU is there or its memory', async ({ node, vfs }) => {
    const vf = vfAt(vfs, 'pf1', 6);
    const where = `device ${deviceName(vf)} is on NUMA node 1`;
    await expect(startPinned(node, 'far', vf, 'require', 0)).rejects.toThrow(
      `container main cannot start with claim default/far, which has numa: require: its CPUs 0 are on NUMA node 0, its memory is on NUMA node 0, and ${where}`,
    );
    await expect(startPinned(node, 'far-memory', vfAt(vfs, 'pf1', 5), 'require', 1, 0)).rejects.toThrow(
      'its CPUs 1 are on NUMA node 1, its memory is on NUMA node 0, and device',
    );
  });

  it('starts there if that is only reported, in the metadata and with an event', async ({ node, vfs }) => {
    const vf = vfAt(vfs, 'pf1', 6);
    expect(await startPinned(node, 'reported', vf, 'report', 0)).toMatchObject({ numaAligned: { bool: false } });
    const notes = () => node.bench.api.objects<{ reason: string; note: string }>('Event');
    await expect
      .poll(() => notes().flatMap(({ reason, note }) => (reason === 'NumaMisaligned' ? [note] : [])), {
        timeout: 10_000,
      })
      .toContain(
        `Devices of claim default/reported are on another NUMA node than CPUs or memory: container main: its CPUs 0 are on NUMA node 0, its memory is on NUMA node 0, and device ${deviceName(vf)} is on NUMA node 1`,
      );
  });
});
