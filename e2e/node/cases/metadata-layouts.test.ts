import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { layoutNames } from '../../../src/framework/metadata/index.ts';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { testDriver } from '../../../test/doubles/objects.ts';
import { Bench } from '../bench.ts';
import { addVfPod, expectClean, expectTold } from '../vf-pod.ts';

/** Here and not on a cluster, where the folder of the layout `downward-api` would be the machine's /etc/dra. */
it('a container has its metadata in all four layouts, and the node none of them after its pod', async () => {
  await using bench = await Bench.start({ version: '1.7', logger: new RecordingLogger() });
  const dirs = { attributesDir: join(bench.dir, 'attributes'), downwardApiDir: join(bench.dir, 'pods') };
  await bench.startDriver({ metadataLayouts: [...layoutNames], ...dirs });
  const pod = await addVfPod(bench, 'all', 0);
  const sandbox = await bench.startPod(pod);
  const container = await bench.startContainer(sandbox, pod);
  const read = async (path: string) => JSON.parse((await container.exec('cat', path)).stdout);
  expect(await expectTold(container, sandbox, pod)).toBe(1);

  const kepDir = '/var/run/dra-device-attributes';
  const kep = await read(`${kepDir}/all/vf/${testDriver}-metadata.json`);
  const [{ name, networkData }] = kep.requests[0].devices;
  expect(networkData).toMatchObject({ addresses: ['192.0.2.1/24'] });
  const downward = await read('/etc/dra/all.vf.json');
  const { bestEffortData, driverProvidedData } = downward.requests[0].devices[0];
  expect(driverProvidedData).toMatchObject({
    networkData: { addresses: networkData.addresses, hwAddress: networkData.hwAddress, interfaceName: 'net1' },
    data: { simulated: true },
  });
  const pciAddress = bestEffortData.attributes['resource.kubernetes.io/pciBusID'];
  expect(name).toBe(pciAddress.replace(/[:.]/g, '-'));
  const { uid } = bench.api.get<{ metadata: { uid: string } }>('ResourceClaim', 'all')?.metadata ?? {};
  const { claims } = await read(`${kepDir}/${testDriver}-${uid}-vf.json`);
  expect(claims[0].requests[0]).toMatchObject({
    requestName: 'vf',
    attributes: { 'resource.kubernetes.io/pciBusID': pciAddress },
  });
  expect(readdirSync(dirs.downwardApiDir)).toEqual([pod.metadata.uid]);

  await bench.endPod(pod);
  await expectClean(bench);
  for (const dir of Object.values(dirs)) expect(existsSync(dir) ? readdirSync(dir) : []).toEqual([]);
});
