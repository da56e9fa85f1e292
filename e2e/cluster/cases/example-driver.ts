import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { type KubernetesObject, loadAllYaml, type V1Pod } from '@kubernetes/client-node';
import { describe, expect, it } from 'vitest';
import { decodeStream } from '../../../src/framework/metadata/index.ts';
import {
  exampleDriver as driver,
  ExampleProcess,
  exampleDir,
  installExample,
} from '../../../test/tools/package/example-process.ts';
import type { Cluster } from '../cluster.ts';
import { metadataRoots } from '../container-view.ts';
import type { GetCluster } from '../describe-cluster.ts';
import { kubeletDir } from '../node/kubelet.ts';
import { nodeName, nodePaths, type RealNode } from '../node/real-node.ts';
import { onNode } from '../objects.ts';

const settled = { timeout: 60_000, interval: 250 };
const pluginDir = join(nodePaths.kubeletPlugins, driver);

/** Class, claim and pod of the example in the namespace of the tests, the pod with a container without the claim. */
function loadExample(cluster: Cluster): KubernetesObject[] {
  const { namespace, target } = cluster;
  const objects = loadAllYaml(readFileSync(join(exampleDir, 'pod.yaml'), 'utf8')) as KubernetesObject[];
  return objects.map((object) => {
    if (object.kind === 'DeviceClass') return object;
    const metadata = { ...object.metadata, namespace };
    if (object.kind !== 'Pod') return { ...object, metadata };
    const { spec } = object as V1Pod;
    const [main] = spec!.containers.map((container) => ({ ...container, image: target.consumerImage }));
    const { resources: _, ...other } = { ...main!, name: 'other' };
    return { ...object, metadata, spec: { ...spec, ...onNode(cluster), containers: [main, other] } };
  });
}

/** The driver of the guide for authors of drivers, installed from the npm package, with a real kubelet. */
export function describeExampleDriver(get: GetCluster, getNode: () => RealNode): void {
  describe('the example driver', { tags: 'newest' }, () => {
    it('serves a container that finds its device in the metadata, survives a kill, and releases its devices', async () => {
      const { cluster, view } = get();
      const node = getNode();
      await using stack = new AsyncDisposableStack();
      const dir = mkdtempSync(join(node.dir, 'example-'));
      stack.defer(() => rmSync(dir, { recursive: true }));
      stack.defer(() => rmSync(pluginDir, { recursive: true, force: true }));
      const scratch = join(dir, 'scratch');
      for (const folder of [scratch, join(dir, 'app')]) mkdirSync(folder);
      const main = installExample(join(dir, 'app'));
      const { adminKubeconfig: KUBECONFIG } = node.controlPlane;
      const settings = { SCRATCH_DIR: scratch, ENABLE_DEVICE_METADATA: 'true' };
      const folders = { KUBELET_DIR: kubeletDir, CDI_DIR: nodePaths.cdi, ...settings };
      const start = () => stack.use(new ExampleProcess(main, { NODE_NAME: nodeName, KUBECONFIG, ...folders }));
      const first = start();
      // A kubelet that does not know the driver tries a pod again after a minute.
      await expect.poll(() => first.output).toContain('registered with the kubelet');
      for (const object of loadExample(cluster)) await cluster.create(object);
      stack.defer(() => cluster.remove('DeviceClass', driver));
      await cluster.waitUntilRunning('scratch').catch((cause) => {
        throw new Error(`the pod does not run: ${first.output}`, { cause });
      });
      const container = view('scratch');
      const file = `${metadataRoots.v1}/resourceclaims/scratch/dir/${driver}-metadata.json`;
      const read = () => container.read('cat', file);
      const text = await read();
      const document = decodeStream(text);
      expect(document).toMatchObject({ generation: 1, request: 'dir', claim: { name: 'scratch' } });
      const path = document.devices[0]?.attributes?.path?.string ?? '';
      await container.read('sh', '-c', `echo hello > ${path}/from-container`);
      expect((await container.exec('sh', '-c', `echo x > ${file}`)).exitCode).not.toBe(0);
      const visible = 'find /scratch /var/run/ -name "slot-*" -o -name "*-metadata.json" 2>/dev/null | wc -l';
      expect(await container.read('sh', '-c', visible)).toBe('2\n');
      expect(await view('scratch', 'other').read('sh', '-c', visible)).toBe('0\n');
      const [, slot = ''] = /\/(slot-\d)$/.exec(path) ?? [];
      expect(readFileSync(join(scratch, slot, 'from-container'), 'utf8')).toBe('hello\n');

      // The container does not depend on the driver, and the new instance finds the prepared claim.
      await first.stop('SIGKILL');
      expect(await read()).toBe(text);
      const second = start();
      await cluster.remove('Pod', 'scratch');
      await expect.poll(() => existsSync(join(scratch, slot)), settled).toBe(false);
      const claimDir = join(pluginDir, 'dra-device-metadata', `${cluster.namespace}_scratch`);
      await expect.poll(() => existsSync(claimDir), settled).toBe(false);
      expect(await second.stop()).toBe(0);
    });
  });
}
