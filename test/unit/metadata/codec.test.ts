import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decodeStream, encodeObject } from '../../../src/metadata/codec.ts';
import type { MetadataDocument } from '../../../src/metadata/document.ts';
import { MetadataError } from '../../../src/metadata/errors.ts';
import { parseJsonStream } from '../../../src/metadata/json-stream.ts';
import { layouts } from '../../../src/metadata/layout.ts';

const claim = { namespace: 'default', name: 'fast-net', uid: '11111111-2222-3333-4444-555555555555' };
const document: MetadataDocument = {
  claim,
  generation: 3,
  podClaimName: 'nic',
  request: 'vf/large',
  devices: [
    {
      driver: 'sriov.netdra.dev',
      pool: 'node-1',
      name: '0000-3b-02-1',
      attributes: { vfIndex: { int: 1 }, 'resource.kubernetes.io/pciBusID': { string: '0000:3b:02.1' } },
      networkData: { interfaceName: 'net1', ips: ['192.0.2.7/24'], hardwareAddress: '02:00:00:00:00:01' },
    },
  ],
};

describe('encodeObject', () => {
  it('writes what the Go helper writes for the same content, key order and indentation included', () => {
    expect(encodeObject(document, 'v1beta1')).toBe(`{
  "kind": "DeviceMetadata",
  "apiVersion": "metadata.resource.k8s.io/v1beta1",
  "metadata": {
    "name": "fast-net",
    "namespace": "default",
    "uid": "11111111-2222-3333-4444-555555555555",
    "generation": 3
  },
  "podClaimName": "nic",
  "requests": [
    {
      "name": "vf/large",
      "devices": [
        {
          "driver": "sriov.netdra.dev",
          "pool": "node-1",
          "name": "0000-3b-02-1",
          "attributes": {
            "resource.kubernetes.io/pciBusID": {
              "string": "0000:3b:02.1"
            },
            "vfIndex": {
              "int": 1
            }
          },
          "networkData": {
            "interfaceName": "net1",
            "ips": [
              "192.0.2.7/24"
            ],
            "hardwareAddress": "02:00:00:00:00:01"
          }
        }
      ]
    }
  ]
}
`);
  });

  it('escapes as Go does', () => {
    const odd = {
      ...document,
      devices: [{ driver: 'd', pool: 'p', name: 'n', attributes: { a: { string: '<&>\u2028' } } }],
    };
    expect(encodeObject(odd, 'v1alpha1')).toContain('"\\u003c\\u0026\\u003e\\u2028"');
    expect(decodeStream(encodeObject(odd, 'v1alpha1'))).toEqual(odd);
  });
});

describe('decodeStream', () => {
  const text = fc.string({ unit: 'binary' });
  const device = fc.record(
    {
      driver: text,
      pool: text,
      name: text,
      attributes: fc.dictionary(
        text.filter((name) => name !== '__proto__'),
        fc.oneof(
          fc.record({ string: text }),
          fc.record({ int: fc.maxSafeInteger() }),
          fc.record({ bool: fc.boolean() }),
          fc.record({ version: text }),
          fc.record({ strings: fc.array(text) }),
          fc.record({ ints: fc.array(fc.maxSafeInteger()) }),
        ),
        { minKeys: 1, noNullPrototype: true },
      ),
      networkData: fc.record({ interfaceName: text, ips: fc.array(text), hardwareAddress: text }, { requiredKeys: [] }),
    },
    { requiredKeys: ['driver', 'pool', 'name'] },
  );
  const anyDocument: fc.Arbitrary<MetadataDocument> = fc.record(
    {
      claim: fc.record({ name: text, namespace: text, uid: text }),
      generation: fc.nat(),
      podClaimName: text,
      request: text,
      devices: fc.array(device, { maxLength: 3 }),
    },
    { requiredKeys: ['claim', 'generation', 'request', 'devices'] },
  ) as fc.Arbitrary<MetadataDocument>;

  it('gives back what any layout wrote', () => {
    fc.assert(
      fc.property(anyDocument, fc.constantFrom(...Object.values(layouts)), (written, layout) => {
        expect(decodeStream(layout.encode(written))).toEqual(written);
      }),
    );
  });

  it('ignores blanks around the objects: the writer pads with them', () => {
    expect(decodeStream(`  \n${layouts.v1.encode(document)}   \n  `)).toEqual(document);
  });

  it('skips versions that it does not know, and names them when there is no other', () => {
    const future = encodeObject(document, 'v1beta1').replace('v1beta1', 'v9');
    expect(decodeStream(future + encodeObject(document, 'v1alpha1'))).toEqual(document);
    expect(() => decodeStream(future)).toThrow(/unknown versions: metadata\.resource\.k8s\.io\/v9/);
  });

  it('answers noise with a MetadataError, nothing else', () => {
    const noise = fc.oneof(
      fc.string(),
      fc.json(),
      fc.array(fc.json()).map((parts) => parts.join('\n')),
    );
    fc.assert(
      fc.property(noise, (input) => {
        try {
          decodeStream(input);
        } catch (error) {
          expect(error).toBeInstanceOf(MetadataError);
        }
      }),
      { numRuns: 500 },
    );
  });

  it('refuses a document that was cut anywhere', () => {
    const whole = layouts.kep.encode(document).trimEnd();
    for (let end = 0; end < whole.length; end++) {
      expect(() => decodeStream(whole.slice(0, end))).toThrow(MetadataError);
    }
  });
});

describe('the kep layout', () => {
  it("adds the names that the KEP's examples read", () => {
    const [object] = parseJsonStream(layouts.kep.encode(document));
    const networkData = {
      interfaceName: 'net1',
      ips: ['192.0.2.7/24'],
      hardwareAddress: '02:00:00:00:00:01',
      addresses: ['192.0.2.7/24'],
      hwAddress: '02:00:00:00:00:01',
    };
    expect(object).toMatchObject({ requests: [{ devices: [{ networkData }] }] });
  });

  it("is mounted under the claim's name and, for a template claim, under the pod's name for it", () => {
    const place = { claim, request: 'vf', driver: 'd.example' };
    expect(layouts.kep.containerPaths(place)).toEqual([
      '/var/run/dra-device-attributes/fast-net/vf/d.example-metadata.json',
    ]);
    expect(layouts.kep.containerPaths({ ...place, podClaimName: 'nic' })).toEqual([
      '/var/run/dra-device-attributes/fast-net/vf/d.example-metadata.json',
      '/var/run/dra-device-attributes/nic/vf/d.example-metadata.json',
    ]);
  });
});

describe('the v1 layout', () => {
  it('is a stream, newest version first', () => {
    const versions = parseJsonStream(layouts.v1.encode(document)).map(({ apiVersion }) => apiVersion);
    expect(versions).toEqual(['metadata.resource.k8s.io/v1beta1', 'metadata.resource.k8s.io/v1alpha1']);
  });

  it('has its own directory for claims from a template', () => {
    const root = '/var/run/kubernetes.io/dra-device-attributes';
    const place = { claim, request: 'vf', driver: 'd.example' };
    expect(layouts.v1.containerPaths(place)).toEqual([`${root}/resourceclaims/fast-net/vf/d.example-metadata.json`]);
    expect(layouts.v1.containerPaths({ ...place, podClaimName: 'nic' })).toEqual([
      `${root}/resourceclaimtemplates/nic/vf/d.example-metadata.json`,
    ]);
    // Present but empty is no template claim: the Go helper's rule.
    expect(layouts.v1.containerPaths({ ...place, podClaimName: '' })[0]).toContain('/resourceclaims/fast-net/');
  });
});
