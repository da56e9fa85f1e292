import { placesIn, put, remove } from './json-places.ts';
import { values } from './json-values.ts';
import type { Random } from './random.ts';

/**
 * A JSON text with one place at a time changed to each value that parsers stumble over, or left out; all there are, in
 * random order. Finds a check that is missing for one field of many, which chance needs long for.
 * @param words texts that mean something where the input goes
 */
export function* substituteJson(
  input: Uint8Array,
  random: Random,
  words: readonly string[] = [],
): Generator<Uint8Array, void, void> {
  const text = Buffer.from(input).toString('utf8');
  const replacements = [...values, ...words];
  const places = countPlaces(text);
  // One number for each pair of a place and a replacement; the last replacement is none at all.
  const pairs = Array.from({ length: places * (replacements.length + 1) }, (_, pair) => pair);
  while (pairs.length > 0) {
    const pair = takeRandom(pairs, random);
    const holder: unknown[] = [JSON.parse(text)];
    const place = placesIn(holder)[pair % places]!;
    const index = Math.floor(pair / places);
    if (index < replacements.length) put(place, replacements[index]);
    else remove(place);
    if (holder.length === 1) yield Buffer.from(JSON.stringify(holder[0]));
  }
}

/** 0 for what is no JSON text. */
function countPlaces(text: string): number {
  try {
    return placesIn([JSON.parse(text)]).length;
  } catch {
    return 0;
  }
}

function takeRandom(list: number[], random: Random): number {
  const index = random.below(list.length);
  const taken = list[index]!;
  list[index] = list.at(-1)!;
  list.pop();
  return taken;
}
