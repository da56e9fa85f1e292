import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { decodeStream, layoutNames } from '../../../src/framework/metadata/index.ts';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { buildClaim, buildPod, generateClaim, testDriver } from '../../../test/doubles/objects.ts';
import { Bench, type RunningContainer } from '../bench.ts';
import { containerdSeries } from '../tools.ts';

const v1Dir = '/var/run/kubernetes.io/dra-device-attributes';
const kepDir = '/var/run/dra-device-attributes';
const fileName = `${testDriver}-metadata.json`;
const config = [
  {
    source: 'FromClaim' as const,
    requests: [],
    parameters: {
      apiVersion: 'netdra.dev/v1alpha1',
      kind: 'VFConfig',
      interfaceName: 'net1',
      addresses: ['192.0.2.10/24'],
    },
  },
];

async function cat(container: RunningContainer, path: string): Promise<string> {
  const { stdout, stderr, exitCode } = await container.exec('cat', path);
  if (exitCode !== 0) throw new Error(`cat ${path}: ${stderr}`);
  return stdout;
}

describe.each(containerdSeries)('metadata layouts on containerd %s', (version) => {
  let bench: Bench;
  let dirs: { attributesDir: string; downwardApiDir: string };

  beforeAll(async () => {
    bench = await Bench.start({ version, logger: new RecordingLogger() });
    dirs = { attributesDir: join(bench.dir, 'attributes'), downwardApiDir: join(bench.dir, 'pods') };
    await bench.startDriver({ metadataLayouts: [...layoutNames], ...dirs });
  });
  afterAll(async () => {
    await bench?.[Symbol.asyncDispose]();
  });
  afterEach(async () => {
    await bench.endAllPods();
    expect(bench.claimFiles()).toEqual([]);
    for (const dir of Object.values(dirs)) expect(existsSync(dir) ? readdirSync(dir) : []).toEqual([]);
  });

  async function device(): Promise<string> {
    await expect.poll(() => bench.api.objects('ResourceSlice')).toHaveLength(1);
    const [slice] = bench.api.objects<{ spec: { devices: { name: string }[] } }>('ResourceSlice');
    return slice?.spec.devices[0]?.name ?? '';
  }

  it('has all four in one container, for a template claim under the names that the pod knows', async () => {
    const pod = buildPod('all', { resourceClaims: [{ name: 'nic', resourceClaimTemplateName: 'nics' }] });
    bench.api.create(pod);
    const claim = generateClaim(pod, 'nic', { requests: [{ name: 'vf', devices: [await device()] }], config });
    bench.api.create(claim);
    const { name, uid } = claim.metadata;
    const sandbox = await bench.startPod(pod);
    const container = await bench.startContainer(sandbox, pod);

    const v1 = decodeStream(await cat(container, `${v1Dir}/resourceclaimtemplates/nic/vf/${fileName}`));
    expect(v1).toMatchObject({
      generation: 1,
      podClaimName: 'nic',
      devices: [{ networkData: { interfaceName: 'net1' } }],
    });
    const [told] = v1.devices;
    const pciAddress = told?.attributes?.['resource.kubernetes.io/pciBusID']?.string;
    for (const claimName of ['nic', name]) {
      const kep = JSON.parse(await cat(container, `${kepDir}/${claimName}/vf/${fileName}`));
      expect(kep.requests[0].devices[0].networkData).toMatchObject({ addresses: ['192.0.2.10/24'] });
      const downward = JSON.parse(await cat(container, `/etc/dra/${claimName}.vf.json`));
      expect(downward).toMatchObject({ apiVersion: 'dra.k8s.io/v1alpha1', metadata: { name, uid } });
      expect(downward.requests[0].devices[0]).toMatchObject({
        bestEffortData: { attributes: { 'resource.kubernetes.io/pciBusID': pciAddress, simulated: 'true' } },
        driverProvidedData: {
          conditions: [{ type: 'Ready', status: 'True' }],
          data: { pciBusID: pciAddress, simulated: true },
          networkData: {
            interfaceName: 'net1',
            addresses: ['192.0.2.10/24'],
            hwAddress: told?.networkData?.hardwareAddress,
          },
        },
      });
    }
    const { claims } = JSON.parse(await cat(container, `${kepDir}/${testDriver}-${uid}-vf.json`));
    expect(claims[0]).toMatchObject({ claimName: name, requests: [{ requestName: 'vf' }] });
    expect(claims[0].requests[0].attributes).toMatchObject({ 'resource.kubernetes.io/pciBusID': pciAddress });
    expect(readdirSync(dirs.downwardApiDir)).toEqual([pod.metadata.uid]);
  });

  it('switched off, gives new pods no file, and keeps what older pods need to start containers again', async () => {
    const podWith = (name: string) => buildPod(name, { resourceClaims: [{ name: 'nic', resourceClaimName: name }] });
    const vf = await device();
    const older = podWith('older');
    bench.api.create(buildClaim('older', { requests: [{ name: 'vf', devices: [vf] }], config, pods: [older] }));
    await bench.startContainer(await bench.startPod(older), older);

    await bench.stopDriver();
    await bench.startDriver({ metadataLayouts: [...layoutNames], ...dirs, enableDeviceMetadata: false });
    // A new sandbox, as after the old one has crashed.
    await bench.endSandboxes(older);
    const container = await bench.startContainer(await bench.runSandbox(older), older);
    const document = decodeStream(await cat(container, `${v1Dir}/resourceclaims/older/vf/${fileName}`));
    expect(document).toMatchObject({ generation: 2, devices: [{ networkData: { ips: ['192.0.2.10/24'] } }] });
    await bench.endPod(older);

    const newer = podWith('newer');
    bench.api.create(buildClaim('newer', { requests: [{ name: 'vf', devices: [vf] }], config, pods: [newer] }));
    const sandbox = await bench.startPod(newer);
    const bare = await bench.startContainer(sandbox, newer);
    // The claim's start gate, and the CDI spec that lets containers wait in it.
    expect(bench.claimFiles()).toEqual(['default_newer', expect.stringMatching(/_metadata_[-0-9a-f]+_vf\.json$/)]);
    expect((await bare.exec('ls', '/var/run/kubernetes.io')).exitCode).not.toBe(0);
    expect((await bare.exec('ip', 'addr', 'show', 'net1')).stdout).toContain('192.0.2.10/24');
  });
});
