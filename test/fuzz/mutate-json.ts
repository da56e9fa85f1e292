import { get, type Place, placesIn, put, remove } from './json-places.ts';
import { numbers, structures, texts, values } from './json-values.ts';
import type { Random } from './random.ts';

const maxDepth = 1000;

/** What a change can draw on. */
interface Source {
  random: Random;
  places: readonly Place[];
  /** Besides {@link texts}. */
  words: readonly string[];
}

const changes: readonly ((place: Place, source: Source) => void)[] = [
  (place, { random }) => put(place, structuredClone(random.pick(values))),
  (place, source) => put(place, anotherOfItsKind(get(place), source)),
  (place, source) => put(place, anotherOfItsKind(get(place), source)),
  (place, { random, places }) => put(place, structuredClone(get(random.pick(places)))),
  (place) => remove(place),
  (place, { random }) => put(place, nested(get(place), random.size(maxDepth), random.oneIn(2))),
  (place, { random }) => put(place, repeated(get(place), random)),
  (place, source) => rename(place, anotherKey(source)),
  (place, source) => put(place, changedScalar(get(place), source)),
  (place, source) => add(get(place), structuredClone(get(source.random.pick(source.places))), source),
];

/**
 * Changes a JSON text as the value that it is, in one to four places.
 * @param words texts that mean something where the input goes
 * @returns `undefined` if it is no JSON text, or one that is nested too deeply
 */
export function mutateJson(input: Uint8Array, random: Random, words: readonly string[] = []): Uint8Array | undefined {
  try {
    const holder: unknown[] = [JSON.parse(Buffer.from(input).toString('utf8'))];
    for (let left = random.size(4); left > 0; left--) {
      const places = placesIn(holder);
      random.pick(changes)(random.pick(places), { random, places, words });
      if (holder.length !== 1) return undefined;
    }
    return Buffer.from(JSON.stringify(holder[0]) ?? 'null');
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof RangeError) return undefined;
    throw error;
  }
}

function rename(place: Place, key: string | number): void {
  if (Array.isArray(place.parent)) return;
  const value = get(place);
  remove(place);
  put({ parent: place.parent, key }, value);
}

function add(parent: unknown, value: unknown, source: Source): void {
  if (Array.isArray(parent)) parent.splice(source.random.below(parent.length + 1), 0, value);
  else if (typeof parent === 'object' && parent !== null) {
    put({ parent: parent as Record<string, unknown>, key: anotherKey(source) }, value);
  }
}

function anotherKey({ random, places, words }: Source): string {
  return String(random.pick([random.pick(texts), random.pick(places).key, random.pick([...words, 'x'])]));
}

/** A text for a text, a number for a number: what else would be refused at once. */
function anotherOfItsKind(value: unknown, { random, words }: Source): unknown {
  if (typeof value === 'string') return random.pick(words.length > 0 && random.oneIn(2) ? words : texts);
  if (typeof value === 'number') return random.pick(numbers);
  if (typeof value === 'boolean') return !value;
  return structuredClone(random.pick(structures));
}

function nested(value: unknown, depth: number, inArrays: boolean): unknown {
  let result = value;
  for (let level = 0; level < depth; level++) result = inArrays ? [result] : { a: result };
  return result;
}

/** Few of what is large: several changes of this kind multiply. */
function repeated(value: unknown, random: Random): unknown[] {
  return Array(random.size(Math.ceil(300 / (1 + placesIn(value).length)))).fill(value);
}

function changedScalar(value: unknown, { random, words }: Source): unknown {
  if (typeof value === 'number') return value + random.pick([-1, 1, 0.5, 256, -value * 2]);
  if (typeof value !== 'string') return value;
  const at = random.below(value.length + 1);
  const part = random.oneIn(2) ? random.pick([...words, ...texts]) : String.fromCharCode(random.below(0x180));
  return value.slice(0, at) + part + value.slice(random.oneIn(2) ? at : at + 1);
}
