import { execFileSync } from 'node:child_process';
import { rmSync } from 'node:fs';
import type { V1Pod } from '@kubernetes/client-node';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { buildClaim, buildPod, type Identified } from '../../../test/doubles/objects.ts';
import type { Bench } from '../../node/bench.ts';
import { removePod, type Sandbox } from '../../node/pod.ts';
import {
  classConfig,
  detailedLinks,
  hostVfStates,
  readMetadata,
  startVmBench,
  startVmDriver,
  type VfState,
  vfConfig,
} from '../vm-node.ts';

describe('after unprepare a VF is what it was before', () => {
  let bench: Bench;
  let before: VfState[];
  let vf: VfState;
  let pod: Identified<V1Pod>;
  let claims = 0;
  beforeAll(async () => {
    bench = await startVmBench(new RecordingLogger());
    await startVmDriver(bench);
    before = hostVfStates();
    vf = before[3]!;
  });
  afterAll(async () => {
    await bench?.[Symbol.asyncDispose]();
  });
  afterEach(async () => {
    await bench.endAllPods();
    expect(bench.claimFiles()).toEqual([]);
  });

  /** Prepares the VF for a pod that changes whatever can be changed of it. */
  async function prepare(): Promise<void> {
    const name = `changed-${claims++}`;
    pod = buildPod(name, { resourceClaims: [{ name: 'nic', resourceClaimName: name }] });
    const config = [
      classConfig({ macAddress: '02:11:22:33:44:55' }),
      vfConfig({ interfaceName: 'net1', mtu: 1400, addresses: ['192.0.2.10/24'], vf: { vlan: 7 } }),
    ];
    const requests = [{ name: 'vf', devices: [vf.pciAddress.replaceAll(/[:.]/g, '-')] }];
    bench.api.create(buildClaim(name, { requests, config, pods: [pod] }));
    await bench.prepare(pod);
  }

  function linkIn(sandbox: Sandbox) {
    return detailedLinks(sandbox.netnsPath).find(({ parentdev }) => parentdev === vf.pciAddress);
  }

  async function expectChanged(sandbox: Sandbox): Promise<void> {
    // As the kubelet does it: what cannot start yet is tried again.
    const container = await vi.waitFor(() => bench.startContainer(sandbox, pod), { timeout: 30_000, interval: 500 });
    expect(linkIn(sandbox)).toMatchObject({ ifname: 'net1', address: '02:11:22:33:44:55', mtu: 1400 });
    const { generation, devices } = await readMetadata(container, `changed-${claims - 1}`, 'vf');
    expect(generation).toBe(1);
    expect(devices[0]?.networkData).toEqual({
      interfaceName: 'net1',
      hardwareAddress: '02:11:22:33:44:55',
      ips: ['192.0.2.10/24'],
    });
  }

  async function withoutDriver<T>(task: () => Promise<T>): Promise<T> {
    await bench.stopDriver();
    try {
      return await task();
    } finally {
      await startVmDriver(bench);
    }
  }

  it('when the pod is stopped', async () => {
    await prepare();
    await expectChanged(await bench.runSandbox(pod));
    await bench.endPod(pod);
    expect(hostVfStates()).toEqual(before);
  });

  it('when the network namespace is deleted first', async () => {
    await prepare();
    const sandbox = await bench.runSandbox(pod);
    expect(linkIn(sandbox)).toMatchObject({ ifname: 'net1' });
    // Its last process and its last name: the kernel brings the VF back as the pod had it.
    process.kill(sandbox.pid, 'SIGKILL');
    execFileSync('umount', ['--lazy', sandbox.netnsPath]);
    rmSync(sandbox.netnsPath);
    await expect
      .poll(() => detailedLinks().find(({ parentdev }) => parentdev === vf.pciAddress), { timeout: 20_000 })
      .toMatchObject({ address: '02:11:22:33:44:55' });
    await bench.endPod(pod);
    expect(hostVfStates()).toEqual(before);
  });

  it('when the driver was away between prepare and hook', async () => {
    await prepare();
    const sandbox = await withoutDriver(async () => {
      const started = await bench.runSandbox(pod);
      // Nobody was there for the hook, and without the metadata no container starts.
      await expect(bench.startContainer(started, pod)).rejects.toThrow(/metadata\.json/);
      return started;
    });
    await expectChanged(sandbox);
    await bench.endPod(pod);
    expect(hostVfStates()).toEqual(before);
  });

  it('when the driver was away between hook and stop', async () => {
    await prepare();
    const sandbox = await bench.runSandbox(pod);
    await expectChanged(sandbox);
    await withoutDriver(async () => {
      await removePod(bench.containerd.cri, sandbox);
      expect(hostVfStates()).not.toEqual(before);
    });
    await bench.endPod(pod);
    expect(hostVfStates()).toEqual(before);
  });
});
