import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { buildClaim, buildPod, testDriver } from '../../../test/doubles/objects.ts';
import { Bench } from '../bench.ts';
import { containerdSeries } from '../tools.ts';

describe.each(containerdSeries)('a driver that is killed, on containerd %s', (version) => {
  let bench: Bench;
  beforeAll(async () => {
    bench = await Bench.start({ version, logger: new RecordingLogger() });
  });
  afterAll(async () => {
    await bench?.[Symbol.asyncDispose]();
  });

  it('loses nothing between prepare and hook, hook and stop, stop and unprepare', async () => {
    const first = await bench.startProcess();
    await expect.poll(() => bench.api.objects('ResourceSlice')).toHaveLength(1);
    const [slice] = bench.api.objects<{ spec: { devices: { name: string }[] } }>('ResourceSlice');
    const device = slice?.spec.devices[0]?.name ?? '';
    const before = bench.hostVfs();
    const pod = buildPod('survivor', { resourceClaims: [{ name: 'nic', resourceClaimName: 'survivor' }] });
    const parameters = {
      apiVersion: 'netdra.dev/v1alpha1',
      kind: 'VFConfig',
      interfaceName: 'net1',
      addresses: ['192.0.2.1/24'],
    };
    const config = [{ source: 'FromClaim' as const, parameters }];
    bench.api.create(buildClaim('survivor', { requests: [{ name: 'vf', devices: [device] }], config, pods: [pod] }));
    await bench.prepare(pod);
    await first.stop('SIGKILL');

    const second = await bench.startProcess();
    const sandbox = await bench.runSandbox(pod);
    const container = await bench.startContainer(sandbox, pod);
    const path = `/var/run/dra-device-attributes/survivor/vf/${testDriver}-metadata.json`;
    const read = async () => JSON.parse((await container.exec('cat', path)).stdout);
    expect(await read()).toMatchObject({ metadata: { generation: 1 } });
    await second.stop('SIGKILL');

    // While nobody is there the file stays; the stop hook is missed, and the VF's link goes with the pod's namespace.
    expect(await read()).toMatchObject({ metadata: { generation: 1 } });
    await bench.endSandboxes(pod);
    await using _third = await bench.startProcess();
    await bench.endPod(pod);
    expect(bench.hostVfs()).toEqual(before);
    expect(bench.claimFiles()).toEqual([]);
  });
});
