import { isDeepStrictEqual } from 'node:util';
import { type DecodedMetadata, decodeMetadata, MetadataError } from '../../../src/metadata/index.ts';
import { sampleTexts } from '../samples.ts';
import { expectThat, type FuzzTarget, utf8 } from '../target.ts';

/** What every reader of a decoded document takes for granted. */
function checkDocument({ claim, generation, requests }: DecodedMetadata): void {
  const devices = requests.flatMap((request) => request.devices);
  const networks = devices.map(({ networkData }) => networkData ?? {});
  const texts = [
    ...[claim.name, claim.namespace, claim.uid],
    ...requests.map(({ name }) => name),
    ...devices.flatMap((device) => [device.driver, device.pool, device.name]),
    ...networks.flatMap(({ interfaceName = '', hardwareAddress = '', ips = [] }) => [
      interfaceName,
      hardwareAddress,
      ...ips,
    ]),
  ];
  expectThat(
    texts.every((text) => typeof text === 'string'),
    'something that is no text where a text belongs',
  );
  expectThat(Number.isSafeInteger(generation), `generation ${generation} is no whole number`);
}

/** Decodes metadata, or says what is wrong with it. */
export const target: FuzzTarget = {
  name: 'metadata-stream',
  errors: [MetadataError],
  covers: ['src/metadata/decode.ts', 'src/metadata/json-stream.ts'],
  shape: 'json',
  dictionary: ['__proto__', '1e400', '-0', '9007199254740993', '{}', '\u2028', '"\\ud800"', 'null', '[', '{'],
  seeds: () => sampleTexts().map((text) => Buffer.from(text)),
  run(input) {
    const text = utf8(input);
    const document = decodeMetadata(text);
    checkDocument(document);
    expectThat(isDeepStrictEqual(document, decodeMetadata(`\n ${text}\t`)), 'blanks around the stream change it');
  },
};
