import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { V1Pod } from '@kubernetes/client-node';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { decodeStream } from '../../../src/framework/metadata/index.ts';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { buildClaim, buildPod, generateClaim, type Identified, testDriver } from '../../../test/doubles/objects.ts';
import { expectedNetworkData } from '../../ip-link.ts';
import { Bench, ipLinks } from '../bench.ts';
import { installMultusStandIn } from '../multus/install.ts';
import type { Sandbox } from '../pod.ts';
import { containerdSeries, locateTools } from '../tools.ts';

const fast = 'example.com/fast';
const simulated = { pfs: 2, vfsPerPf: 4 };

type PublishedDevice = { name: string; attributes: Record<string, { string?: string }> };

/** VFs of the second PF have no resource name. */
const policy = `
apiVersion: netdra.dev/v1alpha1
kind: InventoryPolicy
pfs:
  - select: { name: nsim0 }
    resourceName: ${fast}
  - select: {}
`;

/** The networks in the order of the annotation; the claim's requests are named alike. */
function networkOf(name: string, address: string) {
  const ipam = { type: 'static', addresses: [{ address }] };
  return {
    apiVersion: 'k8s.cni.cncf.io/v1',
    kind: 'NetworkAttachmentDefinition',
    metadata: { name, namespace: 'default', annotations: { 'k8s.v1.cni.cncf.io/resourceName': fast } },
    spec: { config: JSON.stringify({ cniVersion: '1.0.0', name, type: 'sriov', ipam }) },
  };
}

const annotated = (pod: Identified<V1Pod>) => {
  Object.assign(pod.metadata, { annotations: { 'k8s.v1.cni.cncf.io/networks': 'left, right' } });
  return pod;
};

describe.each(containerdSeries)('Multus with claim devices on containerd %s', (version) => {
  const stack = new AsyncDisposableStack();
  let bench: Bench;
  let devices: PublishedDevice[];

  beforeAll(async () => {
    const dir = mkdtempSync(join(tmpdir(), 'netdra-multus-'));
    stack.defer(() => rmSync(dir, { recursive: true, force: true }));
    const tools = locateTools();
    const { binDir, connect } = installMultusStandIn(dir, tools.cniBinDir);
    const policyPath = join(dir, 'policy.yaml');
    writeFileSync(policyPath, policy);
    const settings = { simulate: simulated, inventoryPolicy: policyPath };
    const logger = new RecordingLogger();
    bench = stack.use(await Bench.start({ version, logger, settings, tools: { ...tools, cniBinDir: binDir } }));
    connect(bench.api.url);
    bench.api.create(networkOf('left', '192.0.2.1/24'));
    bench.api.create(networkOf('right', '192.0.2.2/24'));
    await bench.startDriver();
    const slices = () => bench.api.objects<{ spec: { devices: PublishedDevice[] } }>('ResourceSlice');
    await vi.waitUntil(() => slices().length === 1, { timeout: 20_000 });
    devices = slices()[0]?.spec.devices ?? [];
  });
  afterAll(() => stack.disposeAsync());

  /** Requests `first` and `second`, each with one of the devices. */
  const claimOf = (chosen: readonly PublishedDevice[]) => ({
    requests: chosen.map(({ name }, index) => ({ name: ['first', 'second'][index] ?? '', devices: [name] })),
    config: chosen.map(({ attributes }, index) => ({
      source: 'FromClass' as const,
      requests: [['first', 'second'][index] ?? ''],
      // A real VF is found again by its PCI address; a simulated one by its alias, which host-device overwrites.
      parameters: {
        apiVersion: 'netdra.dev/v1alpha1',
        kind: 'VFConfig',
        attach: 'observe',
        macAddress: attributes.mac?.string,
      },
    })),
  });

  async function expectReported(sandbox: Sandbox, pod: Identified<V1Pod>, folder: string) {
    const container = await bench.startContainer(sandbox, pod);
    const links = ipLinks(sandbox);
    for (const [request, interfaceName] of [
      ['first', 'net1'],
      ['second', 'net2'],
    ] as const) {
      const path = `/var/run/kubernetes.io/dra-device-attributes/${folder}/${request}/${testDriver}-metadata.json`;
      const { devices: published } = decodeStream((await container.exec('cat', path)).stdout);
      const link = links.find(({ ifname }) => ifname === interfaceName);
      expect(published.map(({ networkData }) => networkData)).toEqual([expectedNetworkData(link)]);
    }
  }

  it("attaches the devices of a claim to the pod's networks, in the order of the allocation results", async () => {
    const pod = annotated(
      buildPod('by-template', { resourceClaims: [{ name: 'nics', resourceClaimTemplateName: 't' }] }),
    );
    // The second VF first: the order is that of the results, not of the devices.
    const [one, two] = devices.filter(({ attributes }) => attributes['k8s.cni.cncf.io/resourceName']?.string === fast);
    bench.api.create(generateClaim(pod, 'nics', claimOf([two!, one!])));
    const sandbox = await bench.startPod(pod);
    await expectReported(sandbox, pod, 'resourceclaimtemplates/nics');
    const links = ipLinks(sandbox);
    const macOf = (name: string) => links.find(({ ifname }) => ifname === name)?.address;
    expect([macOf('net1'), macOf('net2')]).toEqual([two, one].map((each) => each?.attributes.mac?.string));
    await bench.endPod(pod);
    expect(bench.hostVfs()).toHaveLength(8);
  });

  it('attaches the devices of an extended resource, which the requestMappings of the pod lead to', async () => {
    const pod = annotated(buildPod('by-limit', { resourceClaims: [{ name: 'nics', resourceClaimName: 'by-limit' }] }));
    // Others than before: host-device takes away the alias by which the stand-in finds a simulated VF.
    const chosen = devices.filter(({ attributes }) => attributes['k8s.cni.cncf.io/resourceName']?.string === fast);
    const requestMappings = ['first', 'second'].map((requestName) => {
      return { containerName: 'main', resourceName: fast, requestName };
    });
    Object.assign(pod.status ?? {}, {
      extendedResourceClaimStatus: { resourceClaimName: 'by-limit', requestMappings },
    });
    bench.api.create(buildClaim('by-limit', { ...claimOf(chosen.slice(2)), pods: [pod] }));
    const sandbox = await bench.startPod(pod);
    await expectReported(sandbox, pod, 'resourceclaims/by-limit');
    await bench.endPod(pod);
    expect(bench.hostVfs()).toHaveLength(8);
  });

  it('cannot attach a device that has no resource name, and leaves all VFs on the host', async () => {
    const pod = annotated(buildPod('unnamed', { resourceClaims: [{ name: 'nics', resourceClaimTemplateName: 't' }] }));
    const named = devices.find(({ attributes }) => attributes['k8s.cni.cncf.io/resourceName'] !== undefined);
    const unnamed = devices.find(({ attributes }) => attributes['k8s.cni.cncf.io/resourceName'] === undefined);
    bench.api.create(generateClaim(pod, 'nics', claimOf([named!, unnamed!])));
    await bench.prepare(pod);
    const reason = `device ${unnamed?.name} of ${testDriver} has no attribute k8s.cni.cncf.io/resourceName`;
    await expect(bench.runSandbox(pod)).rejects.toThrow(reason);
    await bench.endPod(pod);
    expect(bench.hostVfs()).toHaveLength(8);
  });
});
