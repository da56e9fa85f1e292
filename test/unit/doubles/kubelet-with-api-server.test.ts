import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { CoreV1Api, KubeConfig, ResourceV1Api } from '@kubernetes/client-node';
import { expect, it } from 'vitest';
import { ApiServer } from '../../doubles/api-server.ts';
import { Kubelet } from '../../doubles/kubelet.ts';
import { buildPod, testDriver as driver, generateClaim, testNode } from '../../doubles/objects.ts';
import { tempDir } from '../../doubles/temp-dir.ts';
import { prepared, TestDriver, wireDevice } from './test-driver.ts';

it('takes a pod with a claim from a template from the API server to its CDI devices and back', async () => {
  await using server = await ApiServer.start();
  using dir = tempDir();
  mkdirSync(join(dir.path, 'dra'));
  const config = new KubeConfig();
  config.loadFromString(server.kubeconfig());
  const resource = config.makeApiClient(ResourceV1Api);
  using plugin = await TestDriver.start({
    dir: dir.path,
    driver,
    prepare: (claims) => prepared(claims, ({ uid }) => [wireDevice('vf-0', ['nic'], [`${driver}/vf=${uid}`])]),
  });
  using kubelet = await Kubelet.start({
    registryDir: dir.path,
    getClaim: (namespace, name) => resource.readNamespacedResourceClaim({ namespace, name }),
    wipeSlices: async (name) => {
      const fieldSelector = `spec.nodeName=${testNode}${name === undefined ? '' : `,spec.driver=${name}`}`;
      await resource.deleteCollectionResourceSlice({ fieldSelector });
    },
    wipeDelayMs: 10,
  });
  await kubelet.waitForDriver(driver);
  await server.until(() => server.requests('DELETE /resourceslices')[0]?.status === 200);

  const template = { name: 'net', resourceClaimTemplateName: 'nic-template' };
  const built = buildPod('dpdk', { resourceClaims: [template] });
  const claim = server.create(generateClaim(built, 'net', { requests: [{ name: 'nic', devices: ['vf-0'] }] }));
  server.create(built);
  const pod = await config.makeApiClient(CoreV1Api).readNamespacedPod({ namespace: 'default', name: 'dpdk' });
  await kubelet.prepare(pod);
  expect(kubelet.cdiDevicesForContainer(pod, 'main')).toEqual([`${driver}/vf=${claim.metadata.uid}`]);
  await kubelet.unprepare(pod);
  expect(plugin.calls.map(({ claims }) => claims[0]?.uid)).toEqual([claim.metadata.uid, claim.metadata.uid]);

  const pool = { name: testNode, generation: 1, resourceSliceCount: 1 };
  await resource.createResourceSlice({ body: { metadata: { name: 's' }, spec: { driver, nodeName: testNode, pool } } });
  plugin.kill();
  await server.until(() => server.objects('ResourceSlice').length === 0);
});
