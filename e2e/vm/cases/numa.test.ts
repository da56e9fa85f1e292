import { expect } from 'vitest';
import { exec, runContainer } from '../../node/pod.ts';
import { vfConfig } from '../vf-config.ts';
import { type VfState, vfAt } from '../vfs.ts';
import { deviceName, readMetadata, type VmNode } from '../vm-node.ts';
import { it } from '../vm-test.ts';

/** @returns starts a container of a new pod, with the CPU and the memory of NUMA nodes, each of which has one CPU */
async function startPod(node: VmNode, name: string, vf: VfState) {
  const { bench } = node;
  const pod = node.createPod(name, vf, [vfConfig({ numa: 'require' })]);
  const sandbox = await bench.startPod(pod);
  const { cri } = bench.containerd;
  const cdiDevices = bench.kubelet.cdiDevicesForContainer(pod, 'main');
  let attempt = 0;
  return async (cpu: number, memoryNode: number) => {
    const spec = { name: 'main', attempt: attempt++, cdiDevices, pinned: { cpu, memoryNode } };
    const id = await runContainer(cri, sandbox, spec);
    const container = { id, exec: (...command: string[]) => exec(cri, id, command) };
    const { stdout } = await container.exec('grep', '_allowed_list', '/proc/self/status');
    expect(stdout.match(/\S+$/gm)).toEqual([`${cpu}`, `${memoryNode}`]);
    const [device] = (await readMetadata({ pod, sandbox, container })).devices;
    return device?.attributes;
  };
}

/** Where that is only reported, and on containerd 1.7: e2e/cluster/cases/numa.ts. */
it("a container with exclusive CPU and memory starts only if both are on its VF's NUMA node", async ({ node, vfs }) => {
  const vf = vfAt(vfs, 'pf1', 5);
  const start = await startPod(node, 'near', vf);
  await expect(start(0, 0)).rejects.toThrow(
    `container main cannot start with claim default/near, which has numa: require: its CPUs 0 are on NUMA node 0, its memory is on NUMA node 0, and device ${deviceName(vf)} is on NUMA node 1`,
  );
  await expect(start(1, 0)).rejects.toThrow('its CPUs 1 are on NUMA node 1, its memory is on NUMA node 0, and device');
  expect(await start(1, 1)).toMatchObject({
    'resource.kubernetes.io/numaNode': { int: 1 },
    numaAligned: { bool: true },
  });
});
