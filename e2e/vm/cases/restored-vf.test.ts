import { execFileSync } from 'node:child_process';
import { rmSync } from 'node:fs';
import { describe, expect, vi } from 'vitest';
import { buildClaim, buildPod } from '../../../test/doubles/objects.ts';
import type { Bench } from '../../node/bench.ts';
import { removePod, type Sandbox } from '../../node/pod.ts';
import {
  classConfig,
  detailedLinks,
  deviceName,
  hostVfStates,
  readMetadata,
  startVmDriver,
  type VfState,
  vfConfig,
} from '../vm-node.ts';
import { it } from '../vm-test.ts';

const changed = { interfaceName: 'net1', macAddress: '02:11:22:33:44:55', mtu: 1400, address: '192.0.2.10/24' };

/** A pod whose claim changes whatever can be changed of a VF, not prepared yet. */
function createPod(bench: Bench, name: string, vf: VfState) {
  const { interfaceName, macAddress, mtu, address } = changed;
  const pod = buildPod(name, { resourceClaims: [{ name: 'nic', resourceClaimName: name }] });
  const config = [classConfig({ macAddress }), vfConfig({ interfaceName, mtu, addresses: [address], vf: { vlan: 7 } })];
  bench.api.create(buildClaim(name, { requests: [{ name: 'vf', devices: [deviceName(vf)] }], config, pods: [pod] }));
  return pod;
}

type Pod = ReturnType<typeof createPod>;

function linkOf(vf: VfState, netnsPath?: string) {
  return detailedLinks(netnsPath).find(({ parentdev }) => parentdev === vf.pciAddress);
}

async function expectChanged(bench: Bench, pod: Pod, sandbox: Sandbox, vf: VfState): Promise<void> {
  // As the kubelet does it: what cannot start yet is tried again.
  const container = await vi.waitFor(() => bench.startContainer(sandbox, pod), { timeout: 30_000, interval: 500 });
  const { interfaceName, macAddress, mtu, address } = changed;
  expect(linkOf(vf, sandbox.netnsPath)).toMatchObject({ ifname: interfaceName, address: macAddress, mtu });
  const { generation, devices } = await readMetadata(container, pod.metadata.name, 'vf');
  expect(generation).toBe(1);
  expect(devices[0]?.networkData).toEqual({ interfaceName, hardwareAddress: macAddress, ips: [address] });
}

async function withoutDriver<T>(bench: Bench, task: () => Promise<T>): Promise<T> {
  await bench.stopDriver();
  try {
    return await task();
  } finally {
    await startVmDriver(bench);
  }
}

/** The fixture compares all VFs once more, when all pods have ended. */
describe('after unprepare a VF is what it was before', () => {
  it('when the pod is stopped', async ({ node, vfs }) => {
    const vf = vfs[3]!;
    const pod = createPod(node, 'stopped', vf);
    await expectChanged(node, pod, await node.startPod(pod), vf);
    await node.endPod(pod);
    expect(hostVfStates()).toEqual(vfs);
  });

  it('when the network namespace is deleted first', async ({ node, vfs }) => {
    const vf = vfs[3]!;
    const pod = createPod(node, 'no-netns', vf);
    const sandbox = await node.startPod(pod);
    expect(linkOf(vf, sandbox.netnsPath)).toMatchObject({ ifname: changed.interfaceName });
    // Its last process and its last name: the kernel brings the VF back as the pod had it.
    process.kill(sandbox.pid, 'SIGKILL');
    execFileSync('umount', ['--lazy', sandbox.netnsPath]);
    rmSync(sandbox.netnsPath);
    await expect.poll(() => linkOf(vf), { timeout: 20_000 }).toMatchObject({ address: changed.macAddress });
    await node.endPod(pod);
    expect(hostVfStates()).toEqual(vfs);
  });

  it('when the driver was away between prepare and hook', async ({ node, vfs }) => {
    const vf = vfs[3]!;
    const pod = createPod(node, 'no-hook', vf);
    await node.prepare(pod);
    const sandbox = await withoutDriver(node, async () => {
      const started = await node.runSandbox(pod);
      // Nobody was there for the hook, and without the metadata no container starts.
      await expect(node.startContainer(started, pod)).rejects.toThrow(/no such file or directory/);
      return started;
    });
    await expectChanged(node, pod, sandbox, vf);
    await node.endPod(pod);
    expect(hostVfStates()).toEqual(vfs);
  });

  it('when the driver was away between hook and stop', async ({ node, vfs }) => {
    const vf = vfs[3]!;
    const pod = createPod(node, 'no-stop', vf);
    const sandbox = await node.startPod(pod);
    await expectChanged(node, pod, sandbox, vf);
    await withoutDriver(node, async () => {
      await removePod(node.containerd.cri, sandbox);
      expect(hostVfStates()).not.toEqual(vfs);
    });
    await node.endPod(pod);
    expect(hostVfStates()).toEqual(vfs);
  });
});
