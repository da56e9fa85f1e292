import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { parseJsonStream } from '../../../../src/framework/metadata/document/json-stream.ts';
import type { ClaimMetadata, DeviceMetadata } from '../../../../src/framework/metadata/index.ts';
import { Bench } from './bench.ts';
import { claim, documentOf, driver, recordOf, samples } from './samples.ts';

const base = 'var/run/kubernetes.io/dra-device-attributes';

/** What a VirtualMachineInstance says of a claim. */
type VmiClaim = { name: string } & ({ resourceClaimName: string } | { resourceClaimTemplateName: string });

/**
 * Does what virt-launcher does to find the PCI address of a VF, and refuses what it refuses. It knows v1alpha1 only, as of
 * Kubernetes 1.36; an unknown version is passed over, but must be an object with an apiVersion.
 */
function findPciAddress(root: string, claims: VmiClaim[], claimName: string, requestName: string): string {
  const found = claims.find(({ name }) => name === claimName);
  if (found === undefined) throw new Error(`metadata not found for claim "${claimName}"`);
  const claimDir =
    'resourceClaimName' in found ? `resourceclaims/${found.resourceClaimName}` : `resourceclaimtemplates/${found.name}`;
  const dir = join(root, base, claimDir, requestName);
  const files = existsSync(dir) ? readdirSync(dir).filter((name) => name.endsWith('-metadata.json')) : [];
  if (files.length === 0) throw new Error(`no files matching ${dir}`);
  if (files.length > 1) throw new Error(`found ${files.length} metadata files, only one driver is supported`);
  const request = selectRequest(decodeV1alpha1(readFileSync(join(dir, files[0] ?? ''), 'utf8')), requestName);
  if (request.devices.length !== 1) throw new Error(`request "${requestName}" has ${request.devices.length} devices`);
  const [device] = request.devices;
  if (device?.attributes?.mdevUUID?.string) throw new Error('taken for a mediated device');
  const address = device?.attributes?.['resource.kubernetes.io/pciBusID']?.string ?? '';
  if (!/^([\da-fA-F]{4}):([\da-fA-F]{2}):([\da-fA-F]{2})\.([0-7]{1})$/.test(address)) {
    throw new Error(`no PCI address: ${address}`);
  }
  return address;
}

interface V1alpha1 {
  requests: { name: string; devices: DeviceMetadata[] }[];
}

function decodeV1alpha1(text: string): V1alpha1 {
  const unknown: unknown[] = [];
  for (const object of parseJsonStream(text)) {
    const { apiVersion, kind } = object;
    if (typeof apiVersion !== 'string' || apiVersion === '') throw new Error('missing apiVersion');
    if (apiVersion === 'metadata.resource.k8s.io/v1alpha1' && kind === 'DeviceMetadata') {
      checkTypes(object);
      return object as unknown as V1alpha1;
    }
    unknown.push(apiVersion);
  }
  throw new Error(`no compatible metadata version found in stream (unknown versions: ${unknown.join(', ')})`);
}

/** What Go's decoder insists on, also in fields that nobody reads. */
function checkTypes(object: object): void {
  const { metadata, podClaimName, requests } = object as { metadata: object; podClaimName?: unknown } & V1alpha1;
  const { name, namespace, uid, generation } = metadata as Record<string, unknown>;
  for (const text of [name, namespace, uid, podClaimName ?? '']) expect(typeof text).toBe('string');
  expect(Number.isInteger(generation)).toBe(true);
  for (const { devices } of requests) {
    for (const { driver, pool, name, networkData = {} } of devices) {
      const { interfaceName = '', hardwareAddress = '', ips = [] } = networkData;
      for (const text of [driver, pool, name, interfaceName, hardwareAddress, ...ips])
        expect(typeof text).toBe('string');
    }
  }
}

function selectRequest({ requests }: V1alpha1, requestName: string) {
  const request = requests.find(({ name }) => name === requestName);
  if (request !== undefined) return request;
  const names = requests.map(({ name }) => name).join(', ');
  throw new Error(`request "${requestName}" not found (available requests: ${names})`);
}

describe('virt-launcher', () => {
  const vmi: VmiClaim[] = [
    { name: 'sriov', resourceClaimName: 'fast-net' },
    { name: 'nic', resourceClaimTemplateName: 'nics' },
  ];
  const kernel = samples.kernel as NonNullable<typeof samples.kernel>;
  const dpdk = samples.dpdk as NonNullable<typeof samples.dpdk>;
  /** KubeVirt binds VFs to vfio-pci; alternatives in a request are beyond it. */
  const vf = { ...documentOf(dpdk), request: 'vf' };

  let bench: Bench;
  let metadata: ClaimMetadata;
  beforeEach(() => {
    bench = new Bench();
    metadata = bench.start();
  });
  afterEach(() => bench[Symbol.dispose]());

  it('finds the VF of a claim, with all layouts switched on', async () => {
    await metadata.prepare(recordOf(kernel), new Map());
    await metadata.update(claim, 'vf', vf.devices);
    const root = bench.enter(claim.uid);
    expect(findPciAddress(root, vmi, 'sriov', 'vf')).toBe('0000:3b:02.1');
  });

  it('finds the VF of a template claim, by the name in the VMI', async () => {
    await metadata.prepare({ ...recordOf(kernel), podClaimName: 'nic' }, new Map());
    await metadata.update(claim, 'vf', vf.devices);
    const root = bench.enter(claim.uid);
    expect(findPciAddress(root, vmi, 'nic', 'vf')).toBe('0000:3b:02.1');
    expect(() => findPciAddress(root, vmi, 'sriov', 'vf')).toThrow('no files matching');
  });

  it('can read the file as user 107', async () => {
    await metadata.prepare(recordOf(kernel), new Map());
    await metadata.update(claim, 'vf', vf.devices);
    for (const hostPath of bench.mounts(claim.uid).values()) {
      expect(statSync(hostPath).mode & 0o004).toBe(0o004);
      expect(statSync(dirname(hostPath)).mode & 0o005).toBe(0o005);
    }
  });

  it('still finds it after an update', async () => {
    await metadata.prepare(recordOf(kernel), new Map());
    await metadata.update(claim, 'vf', vf.devices);
    const root = bench.enter(claim.uid);
    await metadata.update(claim, 'vf', [
      { ...documentOf(kernel).devices[0], ...vf.devices[0], networkData: {} } as never,
    ]);
    expect(findPciAddress(root, vmi, 'sriov', 'vf')).toBe('0000:3b:02.1');
  });

  it('is what refuses the rest: a second driver, a second device, a subrequest', async () => {
    const two = samples.two as NonNullable<typeof samples.two>;
    await metadata.prepare(recordOf(two), new Map([['vfs', documentOf(two).devices]]));
    expect(() => findPciAddress(bench.enter(claim.uid, 'two'), vmi, 'sriov', 'vfs')).toThrow('has 2 devices');

    await metadata.unprepare(claim);
    await metadata.prepare(recordOf(dpdk), new Map([['nic', documentOf(dpdk).devices]]));
    expect(() => findPciAddress(bench.enter(claim.uid, 'sub'), vmi, 'nic', 'nic')).toThrow(
      'available requests: nic/large',
    );

    await metadata.unprepare(claim);
    await metadata.prepare(recordOf(kernel), new Map([['vf', vf.devices]]));
    const root = bench.enter(claim.uid, 'several');
    writeFileSync(join(root, base, 'resourceclaims/fast-net/vf', `other.${driver}-metadata.json`), '{}');
    expect(() => findPciAddress(root, vmi, 'sriov', 'vf')).toThrow('found 2 metadata files');
  });
});
