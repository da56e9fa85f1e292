import { execFileSync, spawnSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { loadAllYaml, type ResourceV1ResourceClaim, type V1Pod } from '@kubernetes/client-node';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { decodeStream } from '../../../src/framework/metadata/index.ts';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { buildClaim, buildPod, type Identified, testNode } from '../../../test/doubles/objects.ts';
import {
  exampleDriver as driver,
  ExampleProcess,
  exampleDir,
  installExample,
} from '../../../test/integration/package/example-process.ts';
import { Bench } from '../bench.ts';
import { containerdSeries, locateTools } from '../tools.ts';

const metadataPath = `/var/run/kubernetes.io/dra-device-attributes/resourceclaims/scratch/dir/${driver}-metadata.json`;

/** Pod and claim of the example; the claim is allocated as by the scheduler. */
function loadExample(slot: string): { pod: Identified<V1Pod>; claim: Identified<ResourceV1ResourceClaim> } {
  const objects = loadAllYaml(readFileSync(join(exampleDir, 'pod.yaml'), 'utf8'));
  const [, claim, pod] = objects as [unknown, ResourceV1ResourceClaim, Identified<V1Pod>];
  Object.assign(pod.metadata, { uid: randomUUID() });
  const requests = (claim.spec.devices?.requests ?? []).map(({ name }) => ({ name, devices: [slot] }));
  const allocated = buildClaim('scratch', { driver, requests, pods: [pod] });
  return { pod, claim: { ...allocated, spec: claim.spec } };
}

/** Whether a process accepts connections there. */
async function isListening(path: string): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const socket = connect(path, () => resolve(true)).once('error', () => resolve(false));
  try {
    return await promise;
  } finally {
    socket.destroy();
  }
}

describe.each(containerdSeries)('the example driver on containerd %s', (version) => {
  let bench: Bench;
  let main: string;
  let appDir: string;
  beforeAll(async () => {
    appDir = mkdtempSync(join(tmpdir(), 'netdra-example-'));
    main = installExample(appDir);
    bench = await Bench.start({ version, logger: new RecordingLogger() });
    symlinkSync(bench.settings.kubeletRegistryDir, join(bench.dir, 'plugins_registry'));
  });
  afterAll(async () => {
    await bench?.[Symbol.asyncDispose]();
    rmSync(appDir, { recursive: true, force: true });
  });

  const scratch = (...parts: string[]) => join(bench.dir, 'scratch', ...parts);

  async function startDriver(): Promise<ExampleProcess> {
    const { kubeconfig: KUBECONFIG, cdiDir: CDI_DIR } = bench.settings;
    const env = { NODE_NAME: testNode, KUBECONFIG, KUBELET_DIR: bench.dir, CDI_DIR, SCRATCH_DIR: scratch() };
    const process = new ExampleProcess(main, env);
    await bench.kubelet.waitForDriver(driver, 60_000).catch((cause) => {
      throw new Error(`the driver did not register: ${process.output}`, { cause });
    });
    // The kubelet may still have the registration of a killed instance.
    const socket = join(bench.dir, 'plugins', driver, 'dra.sock');
    await expect.poll(() => isListening(socket), { timeout: 20_000 }).toBe(true);
    return process;
  }

  it('prepares, serves a container that finds what its metadata says, and gives back', async () => {
    const first = await startDriver();
    const { pod, claim } = loadExample('slot-1');
    bench.api.create(pod);
    bench.api.create(claim);
    const sandbox = await bench.startPod(pod);
    const container = await bench.startContainer(sandbox, pod);
    const { stdout } = await container.exec('cat', metadataPath);
    const document = decodeStream(stdout);
    expect(document).toMatchObject({ generation: 1, claim: { uid: claim.metadata.uid }, request: 'dir' });
    const path = document.devices[0]?.attributes?.path?.string ?? '';
    expect((await container.exec('sh', '-c', `echo hello > ${path}/from-container`)).exitCode).toBe(0);
    expect(readFileSync(scratch('slot-1/from-container'), 'utf8')).toBe('hello\n');
    expect((await container.exec('sh', '-c', `echo x > ${metadataPath}`)).exitCode).not.toBe(0);

    // The container does not depend on the driver, and the new instance finds the prepared claim.
    await first.stop('SIGKILL');
    expect((await container.exec('cat', metadataPath)).stdout).toBe(stdout);
    await bench.kubelet.until(() => !bench.kubelet.plugins(driver).some(({ isConnected }) => isConnected));
    await using second = await startDriver();
    await bench.endPod(pod);
    expect(existsSync(scratch('slot-1'))).toBe(false);
    expect(bench.claimFiles()).toEqual([]);
    expect(existsSync(join(bench.dir, 'plugins', driver, 'dra-device-metadata/default_scratch'))).toBe(false);
    expect(await second.stop()).toBe(0);
  });

  it('shows nothing of the claim to a container that does not use it', async () => {
    await using _ = await startDriver();
    const pod = buildPod('partly', {
      resourceClaims: [{ name: 'work', resourceClaimName: 'partly' }],
      containers: [
        { name: 'with', claims: [{ name: 'work' }] },
        { name: 'without', claims: [] },
      ],
    });
    bench.api.create(buildClaim('partly', { driver, requests: [{ name: 'dir', devices: ['slot-0'] }], pods: [pod] }));
    const sandbox = await bench.startPod(pod);
    const seen = async (name: string) => {
      const container = await bench.startContainer(sandbox, pod, name);
      const { stdout } = await container.exec('sh', '-c', 'find /scratch /var/run/ -name "slot-*" -o -name "*.json"');
      return stdout.trim().split('\n').filter(Boolean).length;
    };
    expect(await seen('with')).toBe(2);
    expect(await seen('without')).toBe(0);
    await bench.endPod(pod);
  });

  it('facts §2.7: understands gRPC as Go speaks it on unix sockets', async () => {
    await using _ = await startDriver();
    const ctr = join(locateTools(process.env).containerdDirs[version], 'ctr');
    const socket = join(bench.dir, 'plugins', driver, 'dra.sock');
    // It requests services that we do not have. The error shows that the request was understood.
    const { status, stderr } = spawnSync(ctr, ['--address', socket, '--timeout', '10s', 'version'], {
      encoding: 'utf8',
    });
    expect(status).not.toBe(0);
    expect(stderr).toMatch(/unimplemented|not implemented/i);
    expect(execFileSync(ctr, ['--address', bench.containerd.socketPath, 'version'], { encoding: 'utf8' })).toContain(
      'Server:',
    );
  });
});
