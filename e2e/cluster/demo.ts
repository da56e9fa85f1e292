/**
 * The demo on a real cluster: `npm run demo -- --kubernetes`. Everything printed after `$` is what a user would type
 * and see.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { explain } from '../../src/lib/errors.ts';
import { demoStep } from '../demo-step.ts';
import { InstalledDriver } from './node/driver.ts';
import { RealNode } from './node/real-node.ts';
import { readPrograms } from './programs.ts';

const startedAt = performance.now();
const manifest = fileURLToPath(new URL('demo.yaml', import.meta.url));
const path = '/var/run/dra-device-attributes/fast-net/vf/sriov.netdra.dev-metadata.json';

async function demo(): Promise<void> {
  const programs = readPrograms(process.env);
  const { kubernetesVersion, runtimeLabel } = programs;
  await using node = await demoStep(`starting Kubernetes ${kubernetesVersion} with ${runtimeLabel}`, () =>
    RealNode.start(programs),
  );
  const show = (...args: string[]) => console.log(`\n$ kubectl ${args.join(' ')}\n${node.kubectl(...args).trimEnd()}`);
  await demoStep('pushing the image, helm install, waiting for the driver', () =>
    InstalledDriver.install(node, { simulate: '8' }),
  );
  await demoStep('waiting for the devices', () => waitForSlices(node));
  show('get', 'resourceslices');
  await demoStep('kubectl apply: a claim and a pod', async () => {
    const applied = node.kubectl('apply', '--filename', manifest);
    if (!applied.includes('pod/demo created')) throw new Error(applied);
  });
  await demoStep('the pod is scheduled and runs', async () => {
    const waited = node.kubectl('wait', '--for=condition=Ready', 'pod/demo', '--timeout=60s');
    if (!waited.includes('condition met')) throw new Error(`${waited}${node.kubectl('describe', 'pod', 'demo')}`);
  });
  show('get', 'pods,resourceclaims');
  show('exec', 'demo', '--', 'cat', path);
  await demoStep('kubectl delete: the VF is detached', async () => {
    node.kubectl('delete', '--filename', manifest, '--wait');
  });
}

async function waitForSlices(node: RealNode): Promise<void> {
  for (const endsAt = performance.now() + 30_000; ; await sleep(250)) {
    if (node.kubectl('get', 'resourceslices').includes('sriov.netdra.dev')) return;
    if (performance.now() > endsAt) throw new Error('the driver offers no devices after 30 s');
  }
}

try {
  await demo();
  console.log(`\ndone in ${((performance.now() - startedAt) / 1_000).toFixed(1)} s`);
} catch (error) {
  console.error(`\nnetdra demo failed: ${explain(error)}`);
  process.exitCode = 1;
}
