import fc from 'fast-check';
import { codePoint } from '../doubles/code-point.ts';

/** Limits of integers and adjacent numbers: typical failures of lengths and counts. */
const lengths = [2, 3, 4, 5, 6, 8, 12, 15, 16, 20, 22, 24, 31, 32].flatMap((bits) => [
  2 ** bits - 1,
  2 ** bits,
  2 ** bits + 1,
]);
const numbers = [0, -1, 1, 1.5, 15, 16, 17, 67, 68, 253, 254, 65_535, 65_536, 2 ** 31, 2 ** 32, 2 ** 53, -1e300];
/** Strings that parsers often handle wrongly, including names of inherited members. */
const texts = [
  '',
  '.',
  '..',
  '/',
  'a/b',
  '../../etc/passwd',
  '%d',
  '%s',
  'a b',
  '\0',
  '\ud800',
  '\u2028',
  '0',
  '-1',
  '1.0.0',
  '__proto__',
  'constructor',
  'toString',
  'ä'.repeat(8),
  ...[15, 16, 253, 10_240].map((size) => 'x'.repeat(size)),
  '0.0.0.0/0',
  '10.0.0.1/24',
  '224.0.0.1/32',
  '::/0',
  '::ffff:10.0.0.1/120',
  '10.0.0.1',
  '2001:db8::1',
  '02:00:00:00:00:01',
  '00:00:00:00:00:00',
  'ff:ff:ff:ff:ff:ff',
  '0000:3b:02.1',
  '\\"}]',
];
const structures = ['[]', '{}', '[[]]', '[null]', '{"a":1}', '{"__proto__":{"polluted":true}}'].map((text) =>
  JSON.parse(text),
);

/** For numbers, lists, paths and JSON. */
const characters = Buffer.from('0123456789afAFxX-+.,:;/%@=_*~"\'\\{}[]() \t\n\0');

/** A number that selects a position, index or choice: the code uses the remainder. */
const anywhere = fc.nat(0xffff_ffff);
/** Mostly short. */
const extent = fc.oneof(fc.integer({ min: 1, max: 8 }), fc.integer({ min: 1, max: 4096 }));

type ByteEdit = (bytes: Uint8Array) => Uint8Array;

const splice = (bytes: Uint8Array, at: number, removed: number, inserted: Uint8Array): Uint8Array => {
  const start = at % (bytes.length + 1);
  return Buffer.concat([bytes.subarray(0, start), inserted, bytes.subarray(start + removed)]);
};

/** A number of one, two or four bytes, in either byte order, that overwrites existing bytes. */
function overwriteNumber(bytes: Uint8Array, at: number, value: number, size: number, isLittle: boolean): Uint8Array {
  if (bytes.length < size) return bytes;
  const copy = Buffer.from(bytes);
  const masked = value % 256 ** size;
  const start = at % (bytes.length - size + 1);
  if (isLittle) copy.writeUIntLE(masked, start, size);
  else copy.writeUIntBE(masked, start, size);
  return copy;
}

/** Edits whose values are drawn. */
function drawn<Values extends unknown[], Subject extends unknown[], Result>(
  parts: { [Index in keyof Values]: fc.Arbitrary<Values[Index]> },
  apply: (values: Values, ...subject: Subject) => Result,
): fc.Arbitrary<(...subject: Subject) => Result> {
  return fc.tuple<Values>(...parts).map(
    (values) =>
      (...subject) =>
        apply(values, ...subject),
  );
}

function byteEdit(samples: readonly Uint8Array[], words: readonly Uint8Array[]): fc.Arbitrary<ByteEdit> {
  const noise = fc.uint8Array({ minLength: 1, maxLength: 32 });
  const inserted = words.length === 0 ? noise : fc.oneof(fc.constantFrom(...words), noise);
  const byte = fc.oneof(fc.nat(255), fc.constantFrom(...characters));
  const size = fc.constantFrom(1, 2, 4);
  return fc.oneof(
    drawn([anywhere, byte], ([at, value], bytes: Uint8Array) => overwriteNumber(bytes, at, value, 1, true)),
    drawn([anywhere, fc.constantFrom(...lengths), size, fc.boolean()], (number, bytes: Uint8Array) =>
      overwriteNumber(bytes, ...number),
    ),
    drawn([anywhere, inserted, fc.boolean()], ([at, part, isOver], bytes: Uint8Array) =>
      splice(bytes, at, isOver ? part.length : 0, part),
    ),
    drawn([anywhere, extent], ([at, removed], bytes: Uint8Array) => splice(bytes, at, removed, Buffer.alloc(0))),
    drawn([anywhere, extent, fc.oneof(fc.nat(4), fc.nat(1000))], ([at, length, times], bytes: Uint8Array) => {
      const start = at % (bytes.length + 1);
      const part = bytes.subarray(start, start + length);
      const most = Math.floor(16_384 / Math.max(1, part.length));
      return splice(bytes, start, 0, Buffer.concat(Array(Math.min(times, most)).fill(part)));
    }),
    drawn([anywhere, fc.constantFrom(...samples), anywhere, extent], ([at, other, from, length], bytes: Uint8Array) => {
      const start = from % (other.length + 1);
      return splice(bytes, at, length, other.subarray(start, start + length));
    }),
    drawn([anywhere], ([at], bytes: Uint8Array) => bytes.subarray(0, at % (bytes.length + 1))),
  );
}

/**
 * Samples with one to five edits: bytes and numbers overwritten, parts inserted, removed, repeated, or taken from another
 * sample.
 * @param words byte strings with a meaning to the parser
 */
export function changedBytes(samples: readonly Uint8Array[], words: readonly string[] = []): fc.Arbitrary<Uint8Array> {
  const edit = byteEdit(
    samples,
    words.map((word) => Buffer.from(word)),
  );
  return fc
    .tuple(fc.constantFrom(...samples), fc.array(edit, { minLength: 1, maxLength: 5 }))
    .map(([sample, edits]) => edits.reduce((bytes, apply) => apply(bytes), sample));
}

/** Repetitions multiply; longer inputs take time without finding more. */
const maxJsonLength = 32_768;

/** A position in a JSON value: the array or object, and the index or name. */
interface Place {
  parent: Record<string, unknown> | unknown[];
  key: string | number;
}
type JsonEdit = (place: Place, places: readonly Place[]) => void;

function placesIn(value: unknown, places: Place[] = []): Place[] {
  if (typeof value !== 'object' || value === null) return places;
  const parent = value as Place['parent'];
  for (const key of Array.isArray(parent) ? parent.keys() : Object.keys(parent)) {
    if (places.length >= 2000) break;
    places.push({ parent, key });
    placesIn(get({ parent, key }), places);
  }
  return places;
}

const get = ({ parent, key }: Place): unknown => (parent as Record<string | number, unknown>)[key];

/** Like JSON.parse, which treats `__proto__` like any other key. */
function put({ parent, key }: Place, value: unknown): void {
  Object.defineProperty(parent, key, { value, writable: true, enumerable: true, configurable: true });
}

function remove({ parent, key }: Place): void {
  if (Array.isArray(parent)) parent.splice(Number(key), 1);
  else delete parent[key];
}

function nest(value: unknown, depth: number, inArrays: boolean): unknown {
  let result = value;
  for (let level = 0; level < depth; level++) result = inArrays ? [result] : { a: result };
  return result;
}

/** A string for a string, a number for a number: other types are rejected at once. */
function jsonEdit(words: readonly string[]): fc.Arbitrary<JsonEdit> {
  const word = fc.oneof(fc.constantFrom(...texts, ...words), fc.string({ unit: codePoint, maxLength: 12 }));
  const number = fc.oneof(fc.constantFrom(...numbers), fc.integer());
  const structure = fc.constantFrom(...structures);
  const value = fc.oneof(word, number, fc.constantFrom(null, true, false), structure);
  const depth = fc.oneof(fc.integer({ min: 1, max: 4 }), fc.integer({ min: 1, max: 1000 }));
  return fc.oneof(
    drawn([value], ([each], place: Place) => put(place, structuredClone(each))),
    drawn([word, number, anywhere, fc.boolean()], ([text, other, at, isWhole], place: Place) => {
      const old = get(place);
      if (typeof old === 'number') put(place, isWhole ? other : old + ((at % 5) - 2) / 2);
      else if (typeof old === 'boolean') put(place, !old);
      else if (typeof old !== 'string' || isWhole) put(place, text);
      else put(place, old.slice(0, at % (old.length + 1)) + text + old.slice((at % (old.length + 1)) + (at % 2)));
    }),
    drawn([anywhere], ([at], place: Place, places: readonly Place[]) => {
      const other = places[at % places.length];
      if (other !== undefined) put(place, structuredClone(get(other)));
    }),
    fc.constant<JsonEdit>((place) => remove(place)),
    drawn([depth, fc.boolean()], ([levels, inArrays], place: Place) => put(place, nest(get(place), levels, inArrays))),
    drawn([fc.integer({ min: 1, max: 300 }), fc.boolean()], ([times, isInPlace], place: Place) => {
      const repeated = get(place);
      const list = Array(Math.ceil(times / (1 + placesIn(repeated).length))).fill(repeated);
      if (Array.isArray(place.parent) && isInPlace) place.parent.splice(Number(place.key), 1, ...list);
      else put(place, list);
    }),
    drawn([word, anywhere, fc.boolean()], ([text, at, isOwn], { parent, key }: Place, places: readonly Place[]) => {
      if (Array.isArray(parent)) return;
      const old = get({ parent, key });
      remove({ parent, key });
      put({ parent, key: isOwn ? text : String(places[at % places.length]?.key ?? text) }, old);
    }),
    drawn([word, value], ([text, added], place: Place) => {
      const parent = get(place) as Place['parent'] | string | number | boolean | null;
      if (Array.isArray(parent)) parent.push(structuredClone(added));
      else if (typeof parent === 'object' && parent !== null) put({ parent, key: text }, structuredClone(added));
    }),
  );
}

/**
 * JSON samples with one to four edits: values, names, depths and lengths of lists changed; at times as bytes.
 * @param words strings with a meaning to the parser
 */
export function changedJson(samples: readonly Uint8Array[], words: readonly string[] = []): fc.Arbitrary<Uint8Array> {
  const parsable = samples.map((sample) => Buffer.from(sample).toString()).filter(isJson);
  const edits = fc.array(fc.tuple(anywhere, jsonEdit(words)), { minLength: 1, maxLength: 4 });
  const asValue = fc
    .tuple(fc.constantFrom(...parsable), edits)
    .map(([text, changes]) => Buffer.from(applyEdits(text, changes)));
  return fc.oneof({ weight: 4, arbitrary: asValue }, { weight: 1, arbitrary: changedBytes(samples, words) });
}

/** @returns the unchanged text if the result would be too long, or nested too deeply to be serialized */
function applyEdits(text: string, edits: readonly (readonly [number, JsonEdit])[]): string {
  const holder: unknown[] = [JSON.parse(text)];
  try {
    for (const [at, apply] of edits) {
      const places = placesIn(holder);
      const place = places[at % places.length];
      if (place !== undefined) apply(place, places);
    }
    const changed = JSON.stringify(holder[0]) ?? 'null';
    return changed.length > maxJsonLength ? text : changed;
  } catch (error) {
    if (error instanceof RangeError) return text;
    throw error;
  }
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
