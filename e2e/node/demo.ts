import { pino } from 'pino';
import type { Settings } from '../../src/instance/settings.ts';
import { explain } from '../../src/lib/errors.ts';
import { buildClaim, buildPod, testDriver } from '../../test/doubles/objects.ts';
import { demoStep } from '../demo-step.ts';
import { Bench } from './bench.ts';
import { locateGate } from './tools.ts';

const startedAt = performance.now();

async function demo(): Promise<void> {
  const logger = pino({ level: 'silent' });
  const settings = gateSettings();
  await using bench = await demoStep('starting containerd, an API server double and a kubelet stand-in', () =>
    Bench.start({ version: '2.1', logger, settings }),
  );
  await using driver = await demoStep(
    'netdra run --enable-device-metadata --simulate 8: registering with the kubelet and the runtime, publishing its VFs',
    async () => {
      const started = await bench.startProcess();
      await bench.api.until(() => bench.api.objects('ResourceSlice').length > 0, 30_000);
      return started;
    },
  );
  const [slice] = bench.api.objects<{ spec: { devices: { name: string }[] } }>('ResourceSlice');
  const device = slice?.spec.devices[0]?.name ?? '';

  const pod = buildPod('demo', { resourceClaims: [{ name: 'nic', resourceClaimName: 'fast-net' }] });
  const parameters = {
    apiVersion: 'netdra.dev/v1alpha1',
    kind: 'VFConfig',
    interfaceName: 'net1',
    mtu: 1400,
    addresses: ['192.0.2.10/24', '2001:db8::10/64'],
  };
  const config = [{ source: 'FromClaim' as const, parameters }];
  bench.api.create(buildClaim('fast-net', { requests: [{ name: 'vf', devices: [device] }], config, pods: [pod] }));

  const laidDown =
    settings.startGate === 'file'
      ? 'the mount is laid down, no file yet'
      : 'mount and start gate are laid down, the file is empty';
  await demoStep(`NodePrepareResources: ${laidDown}`, () => bench.prepare(pod));
  const sandbox = await demoStep('RunPodSandbox: CNI, then our NRI hook moves the VF and writes generation 1', () =>
    bench.runSandbox(pod),
  );
  const container = await demoStep('CreateContainer, StartContainer', () => bench.startContainer(sandbox, pod));
  const path = `/var/run/dra-device-attributes/fast-net/vf/${testDriver}-metadata.json`;
  const { stdout, stderr, exitCode } = await container.exec('cat', path);
  if (exitCode !== 0) throw new Error(`cat in the container failed: ${stderr}`);
  await demoStep('StopPodSandbox, NodeUnprepareResources: the VF is back, the files are gone', () => bench.endPod(pod));
  const code = await demoStep('SIGTERM to the driver', () => driver.stop());
  if (code !== 0) throw new Error(`the driver ended with code ${code}: ${driver.stderr}`);
  const document = JSON.parse(stdout);
  const { generation } = document.metadata;
  const { interfaceName, ips } = document.requests[0].devices[0].networkData;
  if (generation !== 1 || interfaceName !== 'net1' || ips.length !== 2)
    throw new Error(`unexpected metadata: ${stdout}`);
  console.log(`\n$ cat ${path}        (inside the container)\n${stdout.trimEnd()}`);
}

/** Without a C compiler there is no start gate: a container's file is then missing until the VF is attached. */
function gateSettings(): Partial<Settings> {
  try {
    locateGate();
    return {};
  } catch (error) {
    console.error(`netdra: ${explain(error)}; going on with --start-gate=file`);
    return { startGate: 'file' };
  }
}

try {
  await demo();
  console.log(`\ndone in ${((performance.now() - startedAt) / 1000).toFixed(1)} s`);
} catch (error) {
  console.error(`\nnetdra demo failed: ${explain(error)}`);
  process.exitCode = 1;
}
