import { describe, expect, it } from 'vitest';
import { decodeStream } from '../../../src/framework/metadata/index.ts';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { buildClaim, buildPod, testDriver } from '../../../test/doubles/objects.ts';
import { Bench } from '../bench.ts';
import { exec, runContainer } from '../pod.ts';

type PublishedDevice = { name: string; attributes: Record<string, { int?: number }> };

/** The oldest one; on later ones: e2e/cluster/cases/numa.ts, e2e/vm/cases/numa.test.ts. */
const version = '1.7';

/** On a machine that has CPU 0 on NUMA node 0. Memory nodes are those that a memory manager would set. */
describe(`a container with a CPU and memory of its own on containerd ${version}`, () => {
  it('starts beside its VF, and is reported or refused on another NUMA node', async () => {
    const simulate = { pfs: 2, vfsPerPf: 3, numaNodes: [0, 1] };
    await using bench = await Bench.start({ version, logger: new RecordingLogger(), settings: { simulate } });
    await bench.startDriver();
    await expect.poll(() => bench.api.objects('ResourceSlice')).toHaveLength(1);
    const [slice] = bench.api.objects<{ spec: { devices: PublishedDevice[] } }>('ResourceSlice');
    const onNode = (node: number) =>
      slice?.spec.devices.filter(({ attributes }) => attributes['resource.kubernetes.io/numaNode']?.int === node) ?? [];

    const start = async (name: string, device: PublishedDevice | undefined, numa: 'report' | 'require') => {
      const pod = buildPod(name, { resourceClaims: [{ name: 'nic', resourceClaimName: name }] });
      const parameters = { apiVersion: 'netdra.dev/v1alpha1', kind: 'VFConfig', numa };
      const requests = [{ name: 'vf', devices: [device?.name ?? ''] }];
      bench.api.create(buildClaim(name, { requests, config: [{ source: 'FromClaim', parameters }], pods: [pod] }));
      const sandbox = await bench.startPod(pod);
      const cdiDevices = bench.kubelet.cdiDevicesForContainer(pod, 'main');
      const { cri } = bench.containerd;
      const id = await runContainer(cri, sandbox, { name: 'main', cdiDevices, pinned: { cpu: 0, memoryNode: 0 } });
      const file = `/var/run/kubernetes.io/dra-device-attributes/resourceclaims/${name}/vf/${testDriver}-metadata.json`;
      const [described] = decodeStream((await exec(cri, id, ['cat', file])).stdout).devices;
      return described?.attributes?.numaAligned?.bool;
    };

    const [near] = onNode(0);
    const [far, farther] = onNode(1);
    expect(await start('near', near, 'require')).toBe(true);
    expect(await start('reported', far, 'report')).toBe(false);
    await expect(start('refused', farther, 'require')).rejects.toThrow(
      `container main cannot start with claim default/refused, which has numa: require: its CPUs 0 are on NUMA node 0, its memory is on NUMA node 0, and device ${farther?.name} is on NUMA node 1`,
    );
    await expect
      .poll(() => bench.api.objects<{ reason: string; regarding: { name: string } }>('Event'), { timeout: 10_000 })
      .toEqual(expect.arrayContaining([expect.objectContaining({ reason: 'NumaMisaligned' })]));
  });
});
