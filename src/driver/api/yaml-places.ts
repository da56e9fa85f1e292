import type { Event } from 'js-yaml';

/** js-yaml's parser, which the caller has loaded. */
type Parser = Pick<typeof import('js-yaml'), 'EVENT_ID' | 'getScalarValue' | 'parseEvents'>;

/** Where something is in a text; both count from 1. */
export interface TextPlace {
  line: number;
  column: number;
}

/** @returns the place of a field; of one that is missing, that of what should have it */
export type FindPlace = (path: readonly PropertyKey[]) => TextPlace;

/**
 * Finds the places of the fields of YAML documents. js-yaml keeps no positions of what it has read.
 * @returns one for each document
 * @throws YAMLException
 */
export function yamlPlaces(text: string, parser: Parser): FindPlace[] {
  const { EVENT_ID } = parser;
  const events = parser.parseEvents(text, {});
  const documents: FindPlace[] = [];
  let offsets = new Map<string, number>();
  let next = 0;
  const read = (path: readonly PropertyKey[]): void => {
    const event = events[next++];
    if (event?.type === EVENT_ID.SEQUENCE) {
      for (let index = 0; !isEnd(events[next], EVENT_ID.POP); index++) {
        offsets.set(keyOf([...path, index]), startOf(events[next]));
        read([...path, index]);
      }
      next++;
    } else if (event?.type === EVENT_ID.MAPPING) {
      while (!isEnd(events[next], EVENT_ID.POP)) {
        const key = events[next];
        const name = key?.type === EVENT_ID.SCALAR ? parser.getScalarValue(text, key) : '';
        // A key that is no scalar has parts of its own.
        read([]);
        offsets.set(keyOf([...path, name]), startOf(key));
        read([...path, name]);
      }
      next++;
    }
  };
  while (next < events.length) {
    // The document's own event, and its end.
    next++;
    offsets = new Map([[keyOf([]), startOf(events[next])]]);
    if (!isEnd(events[next], EVENT_ID.POP)) read([]);
    next++;
    documents.push(placeIn(text, offsets));
  }
  return documents;
}

function placeIn(text: string, offsets: ReadonlyMap<string, number>): FindPlace {
  return (path) => {
    const known = [...path, ''].map((_, length) => keyOf(path.slice(0, path.length - length)));
    const offset = offsets.get(known.find((each) => offsets.has(each)) ?? '') ?? 0;
    const lines = text.slice(0, offset).split('\n');
    return { line: lines.length, column: (lines.at(-1)?.length ?? 0) + 1 };
  };
}

function keyOf(path: readonly PropertyKey[]): string {
  return path.map(String).join('\n');
}

function isEnd(event: Event | undefined, pop: number): boolean {
  return event === undefined || event.type === pop;
}

function startOf(event: Event | undefined): number {
  if (event === undefined) return 0;
  if ('valueStart' in event) return event.valueStart;
  if ('start' in event) return event.start;
  // Of an alias, without its asterisk.
  return 'anchorStart' in event ? event.anchorStart - 1 : 0;
}
