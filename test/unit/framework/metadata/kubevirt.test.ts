import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { loadAllYaml } from '@kubernetes/client-node';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { DeviceMetadata } from '../../../../src/framework/metadata/index.ts';
import {
  type ClaimRequest,
  decodeForLauncher,
  pciAddressForLibvirt,
  type VmiClaim,
} from '../../../doubles/kubevirt.ts';
import { Bench } from './bench.ts';
import { claim, driver, podUid, samples } from './samples.ts';

const goldenDir = new URL('../../../golden/', import.meta.url);
const example = readFileSync(new URL('../../../../examples/kubevirt-vmi.yaml', import.meta.url), 'utf8');

/** A VF that is bound to vfio-pci. */
function vf(index: number, pciAddress = `0000:3b:02.${index}`): DeviceMetadata {
  const attributes = { 'resource.kubernetes.io/pciBusID': { string: pciAddress }, driver: { string: 'vfio-pci' } };
  return {
    driver,
    pool: 'node-1',
    name: `vf-${index}`,
    attributes,
    networkData: { hardwareAddress: '02:00:00:00:00:01' },
  };
}

interface ClaimOfPod {
  /** Devices by request; those of an alternative have the name of both, `vf/large`. */
  requests: Record<string, DeviceMetadata[]>;
  /** Of a claim from a template: its name in the pod. */
  podClaimName?: string;
  /** Before generation 1: the claim is prepared, and the pod's devices are not yet described. */
  isPending?: boolean;
}

describe("KubeVirt's reader", () => {
  let bench: Bench;
  beforeEach(() => {
    bench = new Bench();
  });
  afterEach(() => bench[Symbol.dispose]());

  /** What the driver writes for a claim, in the container of virt-launcher. */
  async function launch(pod: ClaimOfPod, options: Parameters<Bench['start']>[0] = {}, container = 'container') {
    const { requests, podClaimName, isPending = false } = pod;
    const metadata = bench.start({ layouts: ['v1', 'kep'], ...options });
    const entries = Object.entries(requests).map(([name, devices]) => {
      const names = devices.map(({ pool, name }) => ({ pool, name }));
      return [name.split('/')[0] ?? '', { name, devices: names }] as const;
    });
    const template = podClaimName === undefined ? {} : { podClaimName };
    await metadata.prepare({ claim, podUid, requests: Object.fromEntries(entries), ...template }, new Map());
    for (const [name, devices] of Object.entries(requests)) {
      if (!isPending) await metadata.update(claim, name, devices);
    }
    return bench.enter(claim.uid, container, options.driver);
  }

  const read = (root: string, claims: VmiClaim[], request: ClaimRequest) => {
    const list = (dir: string) => (existsSync(join(root, dir)) ? readdirSync(join(root, dir)) : []);
    return pciAddressForLibvirt({ list, read: (path) => readFileSync(join(root, path), 'utf8') }, claims, request);
  };
  const byName: VmiClaim[] = [{ name: 'nic', resourceClaimName: claim.name }];
  const byTemplate: VmiClaim[] = [{ name: 'nic' }];
  const vfOfNic = { claimName: 'nic', requestName: 'vf' };

  it.each(Object.keys(samples))('decodes the golden file of %s', (name) => {
    const text = readFileSync(new URL(`v1/${name}.golden`, goldenDir), 'utf8');
    const devices = decodeForLauncher(text).requests.flatMap((request) => request.devices ?? []);
    expect(devices.length).toBeGreaterThan(0);
  });

  it('finds the VF of each request of a claim', async () => {
    const root = await launch({ requests: { left: [vf(1)], right: [vf(2)] } });
    expect(await read(root, byName, { claimName: 'nic', requestName: 'left' })).toBe('0000:3b:02.1');
    expect(await read(root, byName, { claimName: 'nic', requestName: 'right' })).toBe('0000:3b:02.2');
  });

  it("finds the VF of a template's claim only by the claim's name in the pod spec", async () => {
    const root = await launch({ requests: { vf: [vf(1)] }, podClaimName: 'nic' });
    expect(await read(root, byTemplate, vfOfNic)).toBe('0000:3b:02.1');
    await expect(read(root, byName, vfOfNic)).rejects.toThrow('0 files in');
  });

  it('finds a VF for each network in kubevirt-vmi.yaml', async () => {
    type Network = { resourceClaim?: ClaimRequest };
    type Template = { spec: { devices: { requests: { name: string }[] } } };
    type Vmi = { resourceClaims: (VmiClaim & { resourceClaimTemplateName: string })[]; networks: Network[] };
    const objects = loadAllYaml(example) as { kind: string; metadata: { name: string }; spec: object }[];
    const vmi = objects.find(({ kind }) => kind === 'VirtualMachineInstance')?.spec as Vmi;
    const requests = vmi.networks.flatMap(({ resourceClaim }) => (resourceClaim === undefined ? [] : [resourceClaim]));
    expect(requests.length).toBeGreaterThan(0);
    for (const request of requests) {
      const used = vmi.resourceClaims.find(({ name }) => name === request.claimName);
      const isUsed = ({ kind, metadata }: (typeof objects)[number]) =>
        kind === 'ResourceClaimTemplate' && metadata.name === used?.resourceClaimTemplateName;
      const template = objects.find(isUsed)?.spec as Template;
      const names = template.spec.devices.requests.map(({ name }) => name);
      const devices = Object.fromEntries(names.map((name, index) => [name, [vf(index)]]));
      const root = await launch({ requests: devices, podClaimName: request.claimName }, {}, request.claimName);
      expect(await read(root, vmi.resourceClaims, request)).toBe(`0000:3b:02.${names.indexOf(request.requestName)}`);
    }
  });

  it('can open every file as another user', async () => {
    const root = await launch({ requests: { vf: [vf(1)] } });
    const files = readdirSync(root, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
    expect(files.length).toBeGreaterThan(0);
    for (const { parentPath, name } of files) expect(statSync(join(parentPath, name)).mode & 0o777).toBe(0o644);
    // The runtime makes the folders in the container; these are the ones on the node.
    for (const hostPath of bench.mounts(claim.uid).values())
      expect(statSync(dirname(hostPath)).mode & 0o005).toBe(0o005);
  });

  // That is why virt-launcher must not start before generation 1.
  it('rejects an empty metadata file', async () => {
    const root = await launch(
      { requests: { vf: [vf(1)] }, isPending: true },
      { gate: { program: '/opt/netdra-gate', timeoutSeconds: 100 } },
    );
    await expect(read(root, byName, vfOfNic)).rejects.toThrow('no supported version among no objects');
  });

  it('rejects a file that contains only v1beta1', async () => {
    const root = await launch({ requests: { vf: [vf(1)] } }, { versions: ['v1beta1'] });
    await expect(read(root, byName, vfOfNic)).rejects.toThrow(
      'no supported version among metadata.resource.k8s.io/v1beta1',
    );
  });

  it.each([
    ['a request with two devices', { vf: [vf(1), vf(2)] }, 'request vf has 2 devices'],
    ['a request with alternatives', { 'vf/large': [vf(1)] }, 'no request vf, only vf/large'],
    ['a PCI domain of eight digits', { vf: [vf(1, '10000:3b:02.1')] }, 'libvirt has no form for 10000:3b:02.1'],
    ['a device without an address', { vf: [{ driver, pool: 'node-1', name: 'nic' }] }, 'nic has no pciBusID'],
  ])('rejects %s', async (_title, requests, message) => {
    await expect(read(await launch({ requests }), byName, vfOfNic)).rejects.toThrow(message);
  });

  it('rejects a request whose devices belong to two drivers', async () => {
    await launch({ requests: { vf: [vf(1)] } });
    const other = { ...vf(2), driver: 'other.example' };
    const root = await launch({ requests: { vf: [other] } }, { driver: other.driver });
    await expect(read(root, byName, vfOfNic)).rejects.toThrow('2 files in');
  });
});
