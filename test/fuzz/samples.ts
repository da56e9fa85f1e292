import { layouts, type MetadataDocument } from '../../src/framework/metadata/index.ts';

const claim = { namespace: 'default', name: 'fast-net', uid: '0f2d8cbb-8a3e-4f6e-9f7a-5f6f2b8f7c11' };
const driver = 'sriov.netdra.dev';
const device = { driver, pool: 'node-1', name: '0000-3b-02-1' };

const attributes = {
  'resource.kubernetes.io/pciBusID': { string: '0000:3b:02.1' },
  numaNode: { int: 1 },
  rdma: { bool: false },
  firmware: { version: '1.2.3' },
  modes: { strings: ['a', 'b'] },
};
const networkData = {
  interfaceName: 'net1',
  ips: ['10.9.8.7/24', '2001:db8::1/64'],
  hardwareAddress: '02:00:00:00:00:07',
};

/** Metadata with almost no content, and with every possible field. */
export const sampleDocuments: readonly MetadataDocument[] = [
  { claim, generation: 1, request: 'vf', devices: [] },
  {
    claim,
    generation: 3,
    podClaimName: 'nic',
    request: 'vf/large',
    devices: [
      { ...device, attributes, networkData },
      { ...device, name: '0000-3b-02-2' },
    ],
  },
];

/** The same as file contents, in the layouts that are streams of documents. */
export function sampleTexts(): string[] {
  return sampleDocuments.flatMap((document) => {
    const content = { claim, request: document.request, driver, published: [], document };
    return [layouts.v1, layouts.kep].map((layout) => layout.encode(content) ?? '');
  });
}
