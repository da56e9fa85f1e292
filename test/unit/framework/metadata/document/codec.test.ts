import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { encodeObject } from '../../../../../src/framework/metadata/document/codec.ts';
import { formatGoJson, parseJsonStream } from '../../../../../src/framework/metadata/document/json-stream.ts';
import {
  decodeMetadata,
  decodeStream,
  layouts,
  MetadataError,
  validateDevices,
} from '../../../../../src/framework/metadata/index.ts';
import * as arbitraries from '../arbitraries.ts';
import { documentOf, samples } from '../samples.ts';

const claim = { namespace: 'default', name: 'fast-net', uid: '11111111-2222-3333-4444-555555555555' };
const document = {
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
const stream = (of: typeof document) => encodeObject(of, 'v1beta1') + encodeObject(of, 'v1alpha1');

describe('encodeObject', () => {
  it('omits empty fields exactly where Go does', () => {
    const bare = { claim, generation: 1, request: 'vf' };
    expect(JSON.parse(encodeObject({ ...bare, devices: [] }, 'v1beta1')).requests).toEqual([{ name: 'vf' }]);
    const empty = { driver: 'd', pool: 'p', name: 'n', attributes: {}, networkData: { interfaceName: '', ips: [] } };
    const text = encodeObject({ ...bare, podClaimName: '', devices: [empty] }, 'v1beta1');
    expect(JSON.parse(text)).toMatchObject({ podClaimName: '' });
    expect(JSON.parse(text).requests[0].devices).toEqual([{ driver: 'd', pool: 'p', name: 'n', networkData: {} }]);
  });

  it('writes the members of a union that are set, in the order of the Go type', () => {
    const attributes = { a: { versions: ['1.0.0'], string: 's', int: 1, colour: 'red' } as object };
    const device = { driver: 'd', pool: 'p', name: 'n', attributes };
    const [{ a }] = JSON.parse(encodeObject({ ...document, devices: [device] }, 'v1beta1')).requests[0].devices.map(
      (each: { attributes: object }) => each.attributes,
    );
    expect(Object.keys(a)).toEqual(['int', 'string', 'versions']);
  });

  it('escapes strings like Go', () => {
    const odd = {
      ...document,
      devices: [{ driver: 'd', pool: 'p', name: 'n', attributes: { a: { string: '<&>\u2028\u2029\u007f\b\f\n' } } }],
    };
    expect(encodeObject(odd, 'v1alpha1')).toContain('"\\u003c\\u0026\\u003e\\u2028\\u2029\u007f\\b\\f\\n"');
    expect(decodeStream(encodeObject(odd, 'v1alpha1'))).toEqual(odd);
  });

  it('writes every digit of a 64-bit integer', () => {
    expect(formatGoJson({ int: 2n ** 63n - 1n })).toBe('{\n  "int": 9223372036854775807\n}');
  });
});

describe('any generated document', () => {
  it('passes validation', () => {
    fc.assert(fc.property(arbitraries.document, ({ request, devices }) => validateDevices(claim, request, devices)));
  });

  it.each(['v1', 'kep'] as const)('is unchanged by encoding and decoding in the layout %s', (name) => {
    fc.assert(
      fc.property(arbitraries.document, (written) => {
        const { claim, request, podClaimName } = written;
        const content = { claim, request, driver: 'd.example', published: [], document: written };
        const text = layouts[name].encode(podClaimName === undefined ? content : { ...content, podClaimName }) ?? '';
        expect(decodeStream(text)).toEqual(written);
        for (const object of parseJsonStream(text)) expect(decodeStream(formatGoJson(object))).toEqual(written);
      }),
      { numRuns: 500 },
    );
  });
});

describe('decodeStream', () => {
  it('skips unknown versions, and names them if there is no known version', () => {
    const future = encodeObject(document, 'v1beta1').replace('v1beta1', 'v9');
    expect(decodeStream(future + encodeObject(document, 'v1alpha1'))).toEqual(document);
    expect(() => decodeStream(future)).toThrow(/unknown versions: metadata\.resource\.k8s\.io\/v9/);
    expect(() => decodeStream(future.replace('metadata.resource.k8s.io/', 'a.example/') + future)).toThrow(
      /unknown versions: a\.example\/v9, metadata\.resource\.k8s\.io\/v9\)/,
    );
  });

  it.each([
    ['a stream without an object', ' \n', 'no metadata objects found in stream'],
    ['an object without a version', '{"kind":"DeviceMetadata"}', 'metadata object without apiVersion or kind'],
    ['an empty version', '{"kind":"DeviceMetadata","apiVersion":""}', 'metadata object without apiVersion or kind'],
    ['a list', '[]', 'no JSON object at offset 0'],
    ['a byte order mark', `\ufeff${stream(document)}`, 'no JSON object at offset 0'],
    ['data after the objects', `${stream(document)}x`, /no JSON object at offset \d+/],
    ['NULs after the objects', `${stream(document)}\0\0`, /no JSON object at offset \d+/],
    ['an incomplete object', '{"kind":{}', 'the JSON object at offset 0 does not end'],
    ['very deep nesting', '{"a":'.repeat(100_000), 'the JSON object at offset 0 is nested more than 64 levels deep'],
    [
      'very deep lists',
      `{"a":${'['.repeat(100_000)}`,
      'the JSON object at offset 0 is nested more than 64 levels deep',
    ],
  ])('rejects %s', (_what, text, message) => {
    expect(() => decodeStream(text)).toThrow(message);
    expect(() => decodeStream(text)).toThrow(MetadataError);
  });

  it('rejects a known newer version that is invalid, instead of falling back to an older version', () => {
    const wrong = encodeObject(document, 'v1beta1').replace('"generation": 3', '"generation": "3"');
    expect(() => decodeStream(wrong + encodeObject(document, 'v1alpha1'))).toThrow(
      'metadata.generation: a whole number expected',
    );
  });

  it.each([
    ['"uid": "11111111-2222-3333-4444-555555555555"', '"uid": 7', 'metadata.uid: a string expected'],
    ['"generation": 3', '"generation": 1.5', 'metadata.generation: a whole number expected'],
    ['"podClaimName": "nic"', '"podClaimName": []', 'podClaimName: a string expected'],
    ['"requests": [', '"requests": {}, "others": [', 'requests: a list expected'],
    ['"name": "vf/large"', '"name": 1', 'requests[0].name: a string expected'],
    ['"driver": "sriov.netdra.dev"', '"driver": 1', 'requests[0].devices[0].driver: a string expected'],
    ['"int": 1', '"int": 1.5', 'requests[0].devices[0].attributes[vfIndex].int: a whole number of 64 bits expected'],
    ['"int": 1', '"int": 9223372036854775808', 'attributes[vfIndex].int: a whole number of 64 bits expected'],
    ['"int": 1', '"int": 1e30', 'attributes[vfIndex].int: a whole number of 64 bits expected'],
    ['"int": 1', '"bool": "yes"', 'attributes[vfIndex].bool: true or false expected'],
    ['"int": 1', '"versions": [1]', 'attributes[vfIndex].versions[0]: a string expected'],
    ['"int": 1', '"ints": 1', 'attributes[vfIndex].ints: a list expected'],
    ['"ips": [', '"ips": "192.0.2.7/24", "more": [', 'networkData.ips: a list expected'],
    ['"192.0.2.7/24"', '4', 'networkData.ips[0]: a string expected'],
  ])('names the field if %s is %s', (before, after, message) => {
    const text = encodeObject(document, 'v1beta1');
    expect(text).toContain(before);
    expect(() => decodeStream(text.replace(before, after))).toThrow(message);
  });

  it('treats absent and null fields as empty, like Go', () => {
    const version = { apiVersion: 'metadata.resource.k8s.io/v1beta1', kind: 'DeviceMetadata' };
    const claim = { name: '', namespace: '', uid: '' };
    expect(decodeMetadata(JSON.stringify(version))).toEqual({ claim, generation: 0, requests: [] });
    const attributes = { a: null, b: { strings: [null], ints: [null], bools: [null] } };
    const device = { driver: null, attributes, networkData: { ips: [null] } };
    const object = { ...version, metadata: { generation: null }, requests: [null, { devices: [null, device] }] };
    const nothing = { driver: '', pool: '', name: '' };
    const read = { a: {}, b: { strings: [''], ints: [0], bools: [false] } };
    expect(decodeMetadata(JSON.stringify(object))).toEqual({
      claim,
      generation: 0,
      requests: [
        { name: '', devices: [] },
        { name: '', devices: [nothing, { ...nothing, attributes: read, networkData: { ips: [''] } }] },
      ],
    });
  });

  it('rejects a known version with another kind, although a valid document follows', () => {
    const other = '{"apiVersion":"metadata.resource.k8s.io/v1beta1","kind":"DeviceMetadataList"}';
    expect(() => decodeStream(other + stream(document))).toThrow(
      expect.objectContaining({
        code: 'metadata-malformed',
        message: 'metadata.resource.k8s.io/v1beta1: kind DeviceMetadata expected, DeviceMetadataList found',
      }),
    );
  });

  it('ignores unknown fields and value types', () => {
    const text = encodeObject(document, 'v1beta1')
      .replace('"generation": 3', '"generation": 3, "labels": {"a": "b"}')
      .replace('"int": 1', '"int": 1, "quantity": "1Gi"')
      .replace('"interfaceName"', '"dns": {}, "interfaceName"');
    expect(decodeStream(text)).toEqual(document);
  });

  it('requires exactly one request; decodeMetadata accepts any number', () => {
    const text = (requests: string) => encodeObject(document, 'v1beta1').replace(/"requests": \[[\s\S]*\]/, requests);
    expect(() => decodeStream(text('"requests": []'))).toThrow('requests: found 0 entries instead of one');
    expect(decodeMetadata(text('"requests": []')).requests).toEqual([]);
    expect(() => decodeStream(text('"requests": [{"name":"a"},{"name":"b"}]'))).toThrow(
      'requests: found 2 entries instead of one',
    );
    expect(decodeMetadata(text('"requests": [{"name":"a"},{"name":"b"}]')).requests).toEqual([
      { name: 'a', devices: [] },
      { name: 'b', devices: [] },
    ]);
    expect(decodeMetadata(text('"other": []')).requests).toEqual([]);
  });

  it('returns integers beyond the safe range as bigint', () => {
    const kinds = documentOf(samples.kinds as NonNullable<typeof samples.kinds>);
    expect(decodeStream(encodeObject(kinds, 'v1beta1')).devices[0]?.attributes).toMatchObject({
      largeInt: { int: 9223372036854775807n },
      ints: { ints: [1, -2, -9223372036854775808n] },
    });
  });

  it('rejects a document truncated anywhere', () => {
    const whole = encodeObject(document, 'v1alpha1').trimEnd();
    for (let end = 0; end < whole.length; end++) {
      expect(() => decodeStream(whole.slice(0, end))).toThrow(MetadataError);
    }
  });
});
