import { isDeepStrictEqual } from 'node:util';
import { parseJsonStream } from '../../../src/framework/metadata/document/json-stream.ts';
import { type DecodedMetadata, decodeMetadata, MetadataError } from '../../../src/framework/metadata/index.ts';
import { sampleTexts } from '../samples.ts';
import { expectThat, type FuzzTarget, parseJson, utf8 } from '../target.ts';

/** Properties on which every reader of a decoded document relies. */
function checkDocument({ claim, generation, requests }: DecodedMetadata): void {
  const devices = requests.flatMap((request) => request.devices);
  const networks = devices.map(({ networkData }) => networkData ?? {});
  const texts = [
    claim.name,
    claim.namespace,
    claim.uid,
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

/** A text that JSON.parse accepts as one object is a stream of one object, unless it is nested too deeply. */
function checkSplitting(text: string): void {
  const value = parseJson(Buffer.from(text));
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return;
  try {
    expectThat(parseJsonStream(text).length === 1, 'one object was split');
  } catch (error) {
    expectThat(error instanceof MetadataError && / deep$/.test(error.message), `one object was refused: ${error}`);
  }
}

/** Decodes metadata, or reports what is wrong with it. */
export const target: FuzzTarget = {
  name: 'metadata-stream',
  errors: [MetadataError],
  shape: 'json',
  dictionary: ['__proto__', '1e400', '-0', '9007199254740993', '{}', '\u2028', '"\\ud800"', 'null', '[', '{'],
  seeds: () => sampleTexts().map((text) => Buffer.from(text)),
  run(input) {
    const text = utf8(input);
    checkSplitting(text);
    const document = decodeMetadata(text);
    checkDocument(document);
    expectThat(isDeepStrictEqual(document, decodeMetadata(`\n ${text}\t`)), 'blanks around the stream change it');
  },
};
