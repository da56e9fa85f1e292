import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import type {
  ClaimRecord,
  DeviceAttributes,
  DeviceMetadata,
  MetadataDocument,
  PublishedDevice,
  RequestContent,
  RequestPlace,
} from '../../../../src/framework/metadata/index.ts';

export const driver = 'sriov.netdra.dev';
export const claim = { namespace: 'default', name: 'fast-net', uid: '1f5e7a52-0c0f-4a5b-9a3e-6a2b7a1d9c10' };
export const podUid = '6a1c2d9e-54b2-4b0e-8a57-0d9c5a1f7e33';
const readySince = '2026-03-01T12:00:00Z';

/** What the ResourceSlice says of a VF that is free (docs/inventory.md). */
function slice(vfIndex: number): DeviceAttributes {
  const pciAddress = { string: `0000:3b:02.${vfIndex}` };
  return {
    'resource.kubernetes.io/pciBusID': pciAddress,
    'resource.kubernetes.io/pcieRoot': { string: 'pci0000:3a' },
    'resource.kubernetes.io/numaNode': { int: 0 },
    'k8s.cni.cncf.io/deviceID': pciAddress,
    kind: { string: 'vf' },
    pciAddress,
    pfPciAddress: { string: '0000:3b:00.0' },
    pfName: { string: 'ens1f0' },
    vfIndex: { int: vfIndex },
    vendor: { string: '8086' },
    device: { string: '1889' },
    driver: { string: 'iavf' },
    iommuGroup: { string: '57' },
    iommuGroupShared: { bool: false },
    mac: { string: '02:00:00:3b:02:01' },
    mtu: { int: 1500 },
    linkType: { string: 'ethernet' },
    linkSpeed: { int: 25000 },
    eswitchMode: { string: 'legacy' },
    rdma: { bool: false },
    rdmaDevice: { string: '' },
    simulated: { bool: false },
  };
}

interface Sample {
  content: RequestContent;
  podUid: string;
}

function sample(
  request: string,
  devices: DeviceMetadata[],
  published: PublishedDevice[],
  podClaimName?: string,
): Sample {
  const identity = { claim, ...(podClaimName === undefined ? {} : { podClaimName }) };
  const document: MetadataDocument = { ...identity, generation: 1, request, devices };
  return { content: { ...identity, request, driver, published, document, readySince }, podUid };
}

const pool = 'node-1';
const vf1 = { driver, pool, name: '0000-3b-02-1' };
const vf2 = { driver, pool, name: '0000-3b-02-2' };

/** A VF with an interface in the pod. */
export const kernel = sample(
  'vf',
  [
    {
      ...vf1,
      attributes: { ...slice(1), mtu: { int: 9000 }, linkUp: { bool: true } },
      networkData: {
        interfaceName: 'net1',
        ips: ['192.0.2.7/24', '2001:db8::7/64'],
        hardwareAddress: '02:00:00:3b:02:01',
      },
    },
  ],
  [{ pool, name: vf1.name, attributes: slice(1) }],
);

/** A VF on vfio-pci, from a template claim whose request has alternatives. */
const dpdk = sample(
  'nic/large',
  [
    {
      ...vf1,
      attributes: {
        ...slice(1),
        driver: { string: 'vfio-pci' },
        vfioDevice: { string: '/dev/vfio/57' },
        vlan: { int: 100 },
      },
      networkData: { hardwareAddress: '02:00:00:3b:02:01' },
    },
  ],
  [{ pool, name: vf1.name, attributes: slice(1) }],
  'nic',
);

/** Two devices in one request. */
const two = sample(
  'vfs',
  [
    { ...vf1, attributes: { vfIndex: { int: 1 } }, networkData: { interfaceName: 'net1', ips: ['192.0.2.7/24'] } },
    { ...vf2, attributes: { vfIndex: { int: 2 } }, networkData: { interfaceName: 'net2', ips: ['192.0.2.8/24'] } },
  ],
  [
    { pool, name: vf1.name, attributes: { vfIndex: { int: 1 } } },
    { pool, name: vf2.name, attributes: { vfIndex: { int: 2 } } },
  ],
);

const everyKind: DeviceAttributes = {
  int: { int: -1 },
  largeInt: { int: 9223372036854775807n },
  bool: { bool: false },
  string: { string: '<a & b>\u2028"\\' },
  emptyString: { string: '' },
  version: { version: '1.2.3-rc.1+build.5' },
  ints: { ints: [1, -2, -9223372036854775808n] },
  bools: { bools: [true, false] },
  strings: { strings: ['a', 'b,c'] },
  versions: { versions: ['1.0.0', '2.0.0'] },
  'a.example/shared': { int: 1 },
  'b.example/shared': { int: 2 },
  'a.example/own': { string: 'qualified' },
  own: { string: 'unqualified' },
};

/** Every kind of attribute, and what Go escapes. */
const kinds = sample('all', [{ ...vf1, attributes: everyKind }], [{ pool, name: vf1.name, attributes: everyKind }]);

/** A device of which nothing is known but its name; the annotation of the claim is there, and empty. */
const identity = sample('any', [vf1], [{ pool, name: vf1.name, attributes: {} }], '');

export const samples: Record<string, Sample> = { kernel, dpdk, two, kinds, identity };

export function place({ content, podUid }: Sample): RequestPlace {
  const { claim, podClaimName, request } = content;
  const base = request.split('/')[0] ?? '';
  return { claim, request: base, driver, podUid, ...(podClaimName === undefined ? {} : { podClaimName }) };
}

export function documentOf({ content }: Sample): MetadataDocument {
  if (content.document === undefined) throw new Error('the sample has no document');
  return content.document;
}

/** What prepares a sample. */
export function recordOf({ content, podUid }: Sample): ClaimRecord {
  const { claim, podClaimName, request, published } = content;
  const base = request.split('/')[0] ?? '';
  const devices = published.map(({ pool, name }) => ({ pool, name }));
  return {
    claim,
    podUid,
    requests: { [base]: { name: request, devices } },
    ...(podClaimName === undefined ? {} : { podClaimName }),
  };
}

/**
 * The text of a golden file. With `UPDATE_GOLDEN=1` the files are written anew; look at the difference before it is kept.
 * @param path below `test/golden`
 */
export function golden(path: string, actual: string): string {
  const file = new URL(`../../../golden/${path}`, import.meta.url).pathname;
  if (process.env.UPDATE_GOLDEN === '1') {
    mkdirSync(dirname(file), { recursive: true });
    if (!existsSync(file) || readFileSync(file, 'utf8') !== actual) writeFileSync(file, actual);
  }
  return readFileSync(file, 'utf8');
}
