import fc from 'fast-check';
import type {
  DeviceAttribute,
  DeviceMetadata,
  MetadataDocument,
  NetworkDeviceData,
} from '../../../../src/framework/metadata/index.ts';
import { codePoint } from '../../../doubles/code-point.ts';

/** What passes validation: every document that we can build. */
const label = fc.stringMatching(/^[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?$/);
const subdomain = fc.array(label, { minLength: 1, maxLength: 2 }).map((labels) => labels.join('.'));
const identifier = fc.stringMatching(/^[A-Za-z_][A-Za-z0-9_]{0,31}$/);
const attributeName = fc.oneof(
  identifier,
  fc.tuple(subdomain, identifier).map((parts) => parts.join('/')),
);
const value = fc.string({ unit: codePoint, maxLength: 64 }).filter((text) => Buffer.byteLength(text) <= 64);
const int = fc.oneof(
  fc.maxSafeInteger(),
  fc
    .bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n })
    .map((each) => (Number.isSafeInteger(Number(each)) ? Number(each) : each)),
);
const version = fc
  .tuple(fc.nat(), fc.nat(), fc.nat(), fc.constantFrom('', '-rc.1', '-0.a-b', '+build.7', '-x+y'))
  .map(([major, minor, patch, rest]) => `${major}.${minor}.${patch}${rest}`);
const listOf = <T>(each: fc.Arbitrary<T>) => fc.array(each, { minLength: 1, maxLength: 6 });

export const attribute: fc.Arbitrary<DeviceAttribute> = fc.oneof(
  fc.record({ int }),
  fc.record({ bool: fc.boolean() }),
  fc.record({ string: value }),
  fc.record({ version }),
  fc.record({ ints: listOf(int) }),
  fc.record({ bools: listOf(fc.boolean()) }),
  fc.record({ strings: listOf(value) }),
  fc.record({ versions: listOf(version) }),
);

const ip = fc.oneof(
  fc.tuple(fc.ipV4(), fc.integer({ min: 0, max: 32 })).map((parts) => parts.join('/')),
  fc
    .tuple(fc.integer({ min: 1, max: 0xffff }), fc.integer({ min: 0, max: 128 }))
    .map(([group, prefix]) => `2001:db8::${group.toString(16)}/${prefix}`),
);

export const networkData: fc.Arbitrary<NetworkDeviceData> = fc.record(
  {
    interfaceName: fc.string({ unit: codePoint, minLength: 1, maxLength: 64 }),
    ips: fc.uniqueArray(ip, { minLength: 1, maxLength: 16 }),
    hardwareAddress: fc.string({ unit: codePoint, minLength: 1, maxLength: 32 }),
  },
  { requiredKeys: [] },
);

export const device: fc.Arbitrary<DeviceMetadata> = fc.record(
  {
    driver: subdomain,
    pool: fc.array(subdomain, { minLength: 1, maxLength: 2 }).map((parts) => parts.join('/')),
    name: label,
    attributes: fc.dictionary(attributeName, attribute, { minKeys: 1, maxKeys: 8, noNullPrototype: true }),
    networkData,
  },
  { requiredKeys: ['driver', 'pool', 'name'] },
);

export const document: fc.Arbitrary<MetadataDocument> = fc
  .record(
    {
      claim: fc.record({ name: subdomain, namespace: label, uid: fc.uuid() }),
      generation: fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER }),
      podClaimName: fc.oneof(label, fc.constant('')),
      request: fc.oneof(
        label,
        fc.tuple(label, label).map((parts) => parts.join('/')),
      ),
      devices: fc.array(device, { maxLength: 3 }),
    },
    { requiredKeys: ['claim', 'generation', 'request', 'devices'] },
  )
  .map((value) => value as MetadataDocument);
