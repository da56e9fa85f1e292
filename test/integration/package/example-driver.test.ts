import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { V1ResourceSlice } from '@kubernetes/client-node';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { decodeStream } from '../../../src/framework/metadata/index.ts';
import { ApiServer } from '../../doubles/api-server.ts';
import { claimsOf } from '../../doubles/claims-of.ts';
import { Kubelet } from '../../doubles/kubelet.ts';
import { buildClaim, buildNode, buildPod, testNode } from '../../doubles/objects.ts';
import { tempDir } from '../../doubles/temp-dir.ts';
import { exampleDriver as driver, ExampleProcess, exampleDir, installExample } from './example-process.ts';

const source = readFileSync(join(exampleDir, 'driver.ts'), 'utf8');

describe('the example driver', () => {
  let appDir: ReturnType<typeof tempDir>;
  let main: string;
  let stack: AsyncDisposableStack;
  let dir: string;
  let api: ApiServer;
  let kubelet: Kubelet;

  beforeAll(() => {
    appDir = tempDir();
    main = installExample(appDir.path);
  });
  afterAll(() => appDir[Symbol.dispose]());
  beforeEach(async () => {
    stack = new AsyncDisposableStack();
    dir = stack.use(tempDir()).path;
    mkdirSync(join(dir, 'plugins_registry'));
    api = stack.use(await ApiServer.start());
    api.create(buildNode());
    await api.writeKubeconfig(join(dir, 'kubeconfig'));
    const registryDir = join(dir, 'plugins_registry');
    kubelet = stack.use(await Kubelet.start({ registryDir, getClaim: claimsOf(api), watchHealth: true }));
  });
  afterEach(() => stack.disposeAsync());

  async function startDriver(more: NodeJS.ProcessEnv = {}): Promise<ExampleProcess> {
    const env = {
      ...{ NODE_NAME: testNode, KUBECONFIG: join(dir, 'kubeconfig'), KUBELET_DIR: dir },
      ...{ CDI_DIR: join(dir, 'cdi'), SCRATCH_DIR: join(dir, 'scratch') },
    };
    const child = stack.use(new ExampleProcess(main, { ...env, ...more }));
    await kubelet.waitForDriver(driver, 60_000).catch((cause) => {
      throw new Error(`the driver did not register: ${child.output}`, { cause });
    });
    return child;
  }

  function addPod(name: string, slot: string) {
    const pod = buildPod(name, { resourceClaims: [{ name: 'scratch', resourceClaimName: name }] });
    api.create(buildClaim(name, { driver, requests: [{ name: 'dir', devices: [slot] }], pods: [pod] }));
    return pod;
  }

  it('is what the guide shows, in less than 100 lines', () => {
    const guide = readFileSync(join(exampleDir, '../../docs/driver-authors.md'), 'utf8');
    expect(guide).toContain(`\`\`\`ts\n${source}\`\`\`\n`);
    expect(source.trimEnd().split('\n').length).toBeLessThan(100);
  });

  it('publishes its devices and their health, prepares, and gives back', async () => {
    const child = await startDriver();
    const [slice] = await api.until(() => {
      const slices = api.objects<V1ResourceSlice>('ResourceSlice');
      return slices.length > 0 && slices;
    }, 10_000);
    expect(slice?.spec.devices?.map(({ name }) => name)).toEqual(['slot-0', 'slot-1', 'slot-2', 'slot-3']);
    const health = () => kubelet.plugins(driver)[0]?.health?.health(testNode, 'slot-3').health;
    await expect.poll(health).toBe('Healthy');

    const pod = addPod('a', 'slot-2');
    await kubelet.prepare(pod);
    expect(kubelet.cdiDevicesForContainer(pod, 'main')).toEqual([
      expect.stringMatching(/^scratch\.example\.com\/scratch=.*_slot-2$/),
      expect.stringMatching(/^scratch\.example\.com\/metadata=.*_dir$/),
    ]);
    const file = join(dir, 'plugins', driver, 'dra-device-metadata/default_a/dir/metadata.json');
    expect(decodeStream(readFileSync(file, 'utf8'))).toMatchObject({
      generation: 1,
      devices: [{ name: 'slot-2', attributes: { path: { string: '/scratch/slot-2' }, index: { int: 2 } } }],
    });
    writeFileSync(join(dir, 'scratch/slot-2/data'), 'mine');
    await kubelet.unprepare(pod);
    expect([existsSync(file), existsSync(join(dir, 'scratch/slot-2'))]).toEqual([false, false]);

    expect(await child.stop()).toBe(0);
    expect(existsSync(join(dir, 'plugins_registry', `${driver}-reg.sock`))).toBe(false);
  });

  it('keeps what is prepared over a restart, and a device for the claim that has it', async () => {
    const first = await startDriver();
    const [pod, late] = [addPod('a', 'slot-0'), addPod('b', 'slot-0')];
    await kubelet.prepare(pod);
    writeFileSync(join(dir, 'scratch/slot-0/data'), 'mine');
    await first.stop('SIGKILL');
    await kubelet.until(() => !kubelet.plugins(driver).some(({ isConnected }) => isConnected));
    await startDriver();
    await expect(kubelet.prepare(late)).rejects.toThrow(/slot-0 is in use by claim/);
    await kubelet.restart();
    await kubelet.waitForDriver(driver);
    await kubelet.prepare(pod);
    expect(readFileSync(join(dir, 'scratch/slot-0/data'), 'utf8')).toBe('mine');
    await kubelet.unprepare(pod);
    await kubelet.prepare(late);
    expect(existsSync(join(dir, 'scratch/slot-0/data'))).toBe(false);
  });

  it('can be updated without a gap', async () => {
    await startDriver({ POD_UID: '0c3be3a3-4b2a-4b39-9a0c-6f2f4f2c0001' });
    const pod = addPod('a', 'slot-1');
    await kubelet.prepare(pod);
    await startDriver({ POD_UID: '0c3be3a3-4b2a-4b39-9a0c-6f2f4f2c0002' });
    await kubelet.until(() => kubelet.plugins(driver).filter(({ isConnected }) => isConnected).length === 2, 10_000);
    await kubelet.unprepare(pod);
    expect(existsSync(join(dir, 'scratch/slot-1'))).toBe(false);
  });
});
