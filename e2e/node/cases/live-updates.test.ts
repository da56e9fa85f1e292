import { execFileSync } from 'node:child_process';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { decodeStream, type MetadataDocument } from '../../../src/framework/metadata/index.ts';
import { systemClock } from '../../../src/lib/clock.ts';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { buildClaim, buildPod, testDriver } from '../../../test/doubles/objects.ts';
import { Bench, type RunningContainer } from '../bench.ts';
import type { Sandbox } from '../pod.ts';

const path = `/var/run/kubernetes.io/dra-device-attributes/resourceclaims/nic/vf/${testDriver}-metadata.json`;

describe('metadata of a running pod', () => {
  let bench: Bench;
  let sandbox: Sandbox;
  let container: RunningContainer;
  const pod = buildPod('live', { resourceClaims: [{ name: 'nic', resourceClaimName: 'nic' }] });

  beforeAll(async () => {
    bench = await Bench.start({ version: '2.1', logger: new RecordingLogger() });
  });
  afterAll(async () => {
    await bench?.[Symbol.asyncDispose]();
  });
  afterEach(async () => {
    await bench.endAllPods();
    expect(bench.hostVfs()).toHaveLength(8);
    await bench.stopDriver();
  });

  async function start(): Promise<void> {
    await expect.poll(() => bench.api.objects('ResourceSlice')).toHaveLength(1);
    const [slice] = bench.api.objects<{ spec: { devices: { name: string }[] } }>('ResourceSlice');
    const devices = [slice?.spec.devices[0]?.name ?? ''];
    const parameters = {
      apiVersion: 'netdra.dev/v1alpha1',
      kind: 'VFConfig',
      interfaceName: 'net1',
      addresses: ['192.0.2.1/24'],
    };
    if (bench.api.get('ResourceClaim', 'nic', 'default') === undefined) {
      const config = [{ source: 'FromClaim' as const, parameters }];
      bench.api.create(buildClaim('nic', { requests: [{ name: 'vf', devices }], config, pods: [pod] }));
    }
    sandbox = await bench.startPod(pod);
    container = await bench.startContainer(sandbox, pod);
  }

  /** Reads the file as a plain reader in the container does. */
  async function read(): Promise<MetadataDocument> {
    return decodeStream((await container.exec('cat', path)).stdout);
  }

  const ip = (...args: string[]) => execFileSync('nsenter', [`--net=${sandbox.netnsPath}`, 'ip', ...args]);

  it('follows addresses, MTU, MAC and link, one generation for each change', async () => {
    await bench.startDriver();
    await start();
    expect(await read()).toMatchObject({ generation: 1 });
    const changes: { command: string[]; expected: object }[] = [
      {
        command: ['addr', 'add', '198.51.100.7/24', 'dev', 'net1'],
        expected: { networkData: { ips: ['192.0.2.1/24', '198.51.100.7/24'] } },
      },
      {
        command: ['addr', 'del', '192.0.2.1/24', 'dev', 'net1'],
        expected: { networkData: { ips: ['198.51.100.7/24'] } },
      },
      { command: ['link', 'set', 'net1', 'mtu', '1280'], expected: { attributes: { mtu: { int: 1280 } } } },
      {
        command: ['link', 'set', 'net1', 'address', '02:00:00:00:00:77'],
        expected: { networkData: { hardwareAddress: '02:00:00:00:00:77' } },
      },
      { command: ['link', 'set', 'net1', 'down'], expected: { attributes: { linkUp: { bool: false } } } },
      { command: ['link', 'set', 'net1', 'up'], expected: { attributes: { linkUp: { bool: true } } } },
    ];
    for (const [index, { command, expected }] of changes.entries()) {
      ip(...command);
      await expect.poll(read).toMatchObject({ generation: index + 2, devices: [expected] });
    }
  });

  it('makes up for what changed while the driver was away', async () => {
    await bench.startDriver();
    await start();
    await bench.stopDriver();
    ip('link', 'set', 'net1', 'mtu', '1281');
    await systemClock.sleep(500);
    expect(await read()).toMatchObject({ generation: 1 });
    await bench.startDriver();
    await expect
      .poll(read, { timeout: 3_000 })
      .toMatchObject({ generation: 2, devices: [{ attributes: { mtu: { int: 1281 } } }] });
  });

  it('does not, when that is switched off', async () => {
    await bench.startDriver({ liveUpdates: false });
    await start();
    ip('link', 'set', 'net1', 'mtu', '1282');
    await systemClock.sleep(1_200);
    expect(await read()).toMatchObject({ generation: 1 });
  });
});
