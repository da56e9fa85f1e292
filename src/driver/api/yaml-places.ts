import type { Event } from 'js-yaml';

/** js-yaml's parser; the caller has imported js-yaml. */
type Parser = Pick<typeof import('js-yaml'), 'EVENT_ID' | 'getScalarValue' | 'parseEvents'>;

/** Place in a text; line and column count from 1. */
export interface TextPlace {
  line: number;
  column: number;
}

/** Returns the place of a field; for a missing field, the place of its parent. */
export type FindPlace = (path: readonly PropertyKey[]) => TextPlace;

/** A value of a document, and the values in it. */
interface YamlValue {
  offset: number;
  fields: Map<string, YamlValue>;
}

/** A list or a mapping that is being parsed. */
interface OpenValue {
  place: YamlValue;
  isMapping: boolean;
  /** Number of items of a list so far. */
  length: number;
  /** The last key, until its value is read. */
  key?: { name: string; offset: number };
}

/**
 * Finds the places of the fields of YAML documents, since js-yaml does not keep places. The work grows with the length of the
 * text, not with its nesting depth or the number of places requested.
 * @returns one function for each document
 * @throws YAMLException
 */
export function yamlPlaces(text: string, parser: Parser): FindPlace[] {
  const { EVENT_ID } = parser;
  const lines = lineStarts(text);
  const documents: YamlValue[] = [];
  const open: OpenValue[] = [];
  for (const event of parser.parseEvents(text, {})) {
    if (event.type === EVENT_ID.POP) {
      open.pop();
      continue;
    }
    const within = open.at(-1);
    let place: YamlValue = { offset: startOf(event), fields: new Map() };
    if (within === undefined) documents.push(place);
    else if (open.length === 1) within.place.offset = place.offset;
    else
      place = placeWithin(within, place, () =>
        event.type === EVENT_ID.SCALAR ? parser.getScalarValue(text, event) : '',
      );
    // The top value of a document has the same place as the document.
    if (open.length === 1 && within !== undefined) place = within.place;
    if (within === undefined || event.type === EVENT_ID.SEQUENCE || event.type === EVENT_ID.MAPPING)
      open.push({ place, isMapping: event.type === EVENT_ID.MAPPING, length: 0 });
  }
  return documents.map((document) => (path) => placeAt(lines, offsetOf(document, path)));
}

/** Adds an item, a key or a value to a list or mapping. @returns the place of the added part */
function placeWithin(within: OpenValue, place: YamlValue, nameOf: () => string): YamlValue {
  if (!within.isMapping) {
    within.place.fields.set(`${within.length++}`, place);
    return place;
  }
  const { key } = within;
  if (key === undefined) {
    within.key = { name: nameOf(), offset: place.offset };
    return place;
  }
  delete within.key;
  const value = { offset: key.offset, fields: place.fields };
  within.place.fields.set(key.name, value);
  return value;
}

function offsetOf(document: YamlValue, path: readonly PropertyKey[]): number {
  let place = document;
  for (const each of path) {
    const next = place.fields.get(String(each));
    if (next === undefined) break;
    place = next;
  }
  return place.offset;
}

/** Offsets at which lines begin, in order. */
function lineStarts(text: string): number[] {
  const starts = [0];
  for (let at = text.indexOf('\n'); at >= 0; at = text.indexOf('\n', at + 1)) starts.push(at + 1);
  return starts;
}

function placeAt(starts: readonly number[], offset: number): TextPlace {
  let [low, high] = [0, starts.length];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if ((starts[middle] ?? 0) <= offset) low = middle;
    else high = middle;
  }
  return { line: low + 1, column: offset - (starts[low] ?? 0) + 1 };
}

function startOf(event: Event): number {
  if ('valueStart' in event) return event.valueStart;
  if ('start' in event) return event.start;
  // An alias starts at its asterisk, one character before its name.
  return 'anchorStart' in event ? event.anchorStart - 1 : 0;
}
