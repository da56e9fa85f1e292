import { existsSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { Bench, ipLinks, type RunningContainer, retry } from '../../e2e/node/bench.ts';
import { decodeStream, type MetadataDocument } from '../../src/framework/metadata/index.ts';
import { RecordingLogger } from '../doubles/logger.ts';
import { buildClaim, buildPod, type ConfigOptions, reserveClaim, testDriver } from '../doubles/objects.ts';

const parameters = (fields: object) => ({ apiVersion: 'netdra.dev/v1alpha1', kind: 'VFConfig', ...fields });
const fromClaim = (fields: object): ConfigOptions => ({ source: 'FromClaim', parameters: parameters(fields) });
const fromClass = (fields: object): ConfigOptions => ({ source: 'FromClass', parameters: parameters(fields) });

/** What claims can ask for, from the API server to the container, on a real containerd. */
describe('the configuration of a claim', () => {
  const logger = new RecordingLogger();
  let bench: Bench;
  beforeAll(async () => {
    bench = await Bench.start({ version: '2.1', logger });
    await bench.startDriver();
    await vi.waitFor(() => expect(devices()).toHaveLength(8), { timeout: 10_000 });
  });
  afterAll(async () => {
    await bench?.[Symbol.asyncDispose]();
  });
  afterEach(async () => {
    await bench.endAllPods();
    expect(bench.claimFiles()).toEqual([]);
    expect(bench.hostVfs()).toHaveLength(8);
  });

  const devices = () =>
    bench.api
      .objects<{ spec: { devices: { name: string }[] } }>('ResourceSlice')
      .flatMap(({ spec }) => spec.devices.map(({ name }) => name));

  /** A pod with claims of one request each, by name. */
  function create(name: string, claims: Record<string, { count?: number; config: ConfigOptions[] }>) {
    const resourceClaims = Object.keys(claims).map((claim) => ({ name: claim, resourceClaimName: claim }));
    const pod = buildPod(name, { resourceClaims });
    const free = devices();
    for (const [claim, { count = 1, config }] of Object.entries(claims)) {
      const requests = [{ name: 'vf', devices: free.splice(0, count) }];
      bench.api.create(buildClaim(claim, { requests, config, pods: [pod] }));
    }
    return pod;
  }

  async function readMetadata(container: RunningContainer, claim: string): Promise<MetadataDocument> {
    const root = '/var/run/kubernetes.io/dra-device-attributes/resourceclaims';
    const { stdout } = await container.exec('cat', `${root}/${claim}/vf/${testDriver}-metadata.json`);
    return decodeStream(stdout);
  }

  it('takes the network of a NetworkAttachmentDefinition, and needs no API server after prepare', async () => {
    const config = {
      cniVersion: '1.0.0',
      plugins: [
        { type: 'host-device', device: 'nsim0v0' },
        { type: 'tuning', mtu: 1350 },
      ],
    };
    bench.api.create({
      apiVersion: 'k8s.cni.cncf.io/v1',
      kind: 'NetworkAttachmentDefinition',
      metadata: { name: 'fast', namespace: 'default' },
      spec: { config: JSON.stringify(config) },
    });
    const reference = { attach: 'cni', networkAttachmentDefinition: { name: 'fast' } };
    const pod = create('attached', { 'by-nad': { config: [fromClass(reference)] } });
    await bench.prepare(pod);
    bench.api.delete('NetworkAttachmentDefinition', 'fast');
    const sandbox = await bench.runSandbox(pod);
    // A plugin may wait for duplicate address detection longer than the hook may.
    const container = await retry(() => bench.startContainer(sandbox, pod));
    const link = ipLinks(sandbox).find(({ ifname }) => ifname === 'net1');
    expect(link).toMatchObject({ mtu: 1350 });
    expect((await readMetadata(container, 'by-nad')).devices).toMatchObject([
      { attributes: { mtu: { int: 1350 } }, networkData: { interfaceName: 'net1', hardwareAddress: link?.address } },
    ]);
  });

  it('says to the pod which NetworkAttachmentDefinition is missing', async () => {
    const reference = { attach: 'cni', networkAttachmentDefinition: { name: 'nowhere' } };
    const pod = create('missing', { missing: { config: [fromClass(reference)] } });
    await expect(bench.prepare(pod)).rejects.toThrow(
      /claim default\/missing: NetworkAttachmentDefinition default\/nowhere does not exist: .*create it, or correct the VFConfig/,
    );
  });

  it('sets kernel settings of the interface, as a container finds them', async () => {
    const sysctls = { 'net.ipv4.conf.IFNAME.arp_announce': 2, 'net.ipv6.conf.IFNAME.accept_ra': '0' };
    const config = [fromClass({ sysctls }), fromClaim({ interfaceName: 'fast0' })];
    const pod = create('tuned', { tuned: { config } });
    const container = await bench.startContainer(await bench.startPod(pod), pod);
    const read = async (key: string) => (await container.exec('cat', `/proc/sys/net/${key}`)).stdout.trim();
    expect(await read('ipv4/conf/fast0/arp_announce')).toBe('2');
    expect(await read('ipv6/conf/fast0/accept_ra')).toBe('0');
    expect(await read('ipv4/conf/all/arp_announce')).toBe('0');
  });

  it('gives the reason for a kernel setting that the kernel does not know', async () => {
    const config = [fromClass({ sysctls: { 'net.ipv4.conf.IFNAME.no_such_key': 1 } })];
    const pod = create('untuned', { untuned: { config } });
    const sandbox = await bench.startPod(pod);
    await expect(bench.startContainer(sandbox, pod)).rejects.toThrow(
      /cannot set net\.ipv4\.conf\.IFNAME\.no_such_key to 1 .*ENOENT/,
    );
  });

  it('serves two claims of one pod, one of them with three VFs', async () => {
    const pod = create('many', {
      three: { count: 3, config: [fromClaim({ interfaceName: 'data%d', mtu: 1400 })] },
      one: { config: [fromClaim({ interfaceName: 'control', addresses: ['192.0.2.1/24'] })] },
    });
    const sandbox = await bench.startPod(pod);
    const container = await bench.startContainer(sandbox, pod);
    const names = (await readMetadata(container, 'three')).devices.map(({ networkData }) => networkData?.interfaceName);
    expect(names).toEqual(['data0', 'data1', 'data2']);
    expect((await readMetadata(container, 'one')).devices).toMatchObject([
      { networkData: { interfaceName: 'control', ips: ['192.0.2.1/24'] } },
    ]);
    const links = ipLinks(sandbox).map(({ ifname }) => ifname);
    expect(links).toEqual(expect.arrayContaining(['data0', 'data1', 'data2', 'control']));
  });

  it('refuses a device that another claim has, with both named', async () => {
    const [device = ''] = devices();
    const first = create('first', { first: { config: [] } });
    await bench.prepare(first);
    const second = buildPod('second', { resourceClaims: [{ name: 'second', resourceClaimName: 'second' }] });
    bench.api.create(buildClaim('second', { requests: [{ name: 'vf', devices: [device] }], pods: [second] }));
    await expect(bench.prepare(second)).rejects.toThrow(
      /cannot be prepared for claim default\/second: it is prepared for claim default\/first/,
    );
  });

  it('refuses a claim that is reserved for two pods, with their names', async () => {
    const other = buildPod('other');
    const pod = create('shared', { shared: { config: [] } });
    bench.api.edit('ResourceClaim', 'shared', (claim) =>
      reserveClaim(claim as object as Parameters<typeof reserveClaim>[0], other),
    );
    await expect(bench.prepare(pod)).rejects.toThrow(
      /claim default\/shared is reserved for 2 pods \(other, shared\), and a VF can be in one only/,
    );
  });

  it('refuses the metadata to a pod that the claim is reserved for later', async () => {
    const pod = create('owner', { owned: { config: [] } });
    const container = await bench.startContainer(await bench.startPod(pod), pod);
    const late = buildPod('late', { resourceClaims: [{ name: 'nic', resourceClaimName: 'owned' }] });
    bench.api.edit('ResourceClaim', 'owned', (claim) =>
      reserveClaim(claim as object as Parameters<typeof reserveClaim>[0], late),
    );
    // The kubelet has prepared the claim and does not ask again.
    const sandbox = await bench.startPod(late);
    await expect(bench.startContainer(sandbox, late)).rejects.toThrow(/prepared for another pod, and cannot be in two/);
    expect((await readMetadata(container, 'owned')).devices).toHaveLength(1);
    await bench.endPod(late);
    expect((await readMetadata(container, 'owned')).devices).toHaveLength(1);
  });

  it('gives the devices for vhost, or says which module the node lacks', async () => {
    const pod = create('vhost', { vhost: { config: [fromClass({ vhost: true })] } });
    if (existsSync('/sys/class/misc/vhost-net')) {
      const container = await bench.startContainer(await bench.startPod(pod), pod);
      for (const path of ['/dev/vhost-net', '/dev/net/tun']) {
        expect((await container.exec('test', '-c', path)).exitCode).toBe(0);
      }
    } else {
      await expect(bench.prepare(pod)).rejects.toThrow(
        /this node has no device file for vhost-net.*\(modprobe vhost_net/,
      );
    }
  });

  it('refuses what a claim may not set, and what simulated VFs have not', async () => {
    const privileged = create('privileged', { privileged: { config: [fromClaim({ driver: 'vfio-pci' })] } });
    await expect(bench.prepare(privileged)).rejects.toThrow(
      /claim default\/privileged may not set driver \(set it in the/,
    );
    const simulated = create('dpdk', { dpdk: { config: [fromClass({ driver: 'vfio-pci' })] } });
    await expect(bench.prepare(simulated)).rejects.toThrow(/cannot have driver vfio-pci/);
  });
});
