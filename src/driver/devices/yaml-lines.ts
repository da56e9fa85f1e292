import type { Event } from 'js-yaml';

/** js-yaml's parser, which the caller has loaded. */
type Parser = Pick<typeof import('js-yaml'), 'EVENT_ID' | 'getScalarValue' | 'parseEvents'>;

/**
 * Finds the lines of a YAML document's fields. js-yaml keeps no positions of what it has read.
 * @returns the line of a path, from 1; of a field that is missing, that of what should have it
 * @throws YAMLException
 */
export function yamlLines(text: string, parser: Parser): (path: readonly PropertyKey[]) => number {
  const { EVENT_ID } = parser;
  const events = parser.parseEvents(text, {});
  const offsets = new Map<string, number>();
  const at = (path: readonly PropertyKey[]) => path.map(String).join('\n');
  let next = 0;
  const read = (path: readonly PropertyKey[]): void => {
    const event = events[next++];
    if (event?.type === EVENT_ID.SEQUENCE) {
      for (let index = 0; !isEnd(events[next], EVENT_ID.POP); index++) {
        offsets.set(at([...path, index]), startOf(events[next]));
        read([...path, index]);
      }
      next++;
    } else if (event?.type === EVENT_ID.MAPPING) {
      while (!isEnd(events[next], EVENT_ID.POP)) {
        const key = events[next];
        const name = key?.type === EVENT_ID.SCALAR ? parser.getScalarValue(text, key) : '';
        // A key that is no scalar has parts of its own.
        read([]);
        offsets.set(at([...path, name]), startOf(key));
        read([...path, name]);
      }
      next++;
    }
  };
  while (events[next]?.type === EVENT_ID.DOCUMENT) next++;
  read([]);
  return (path) => {
    const known = path.map((_, length) => path.slice(0, path.length - length)).find((each) => offsets.has(at(each)));
    const offset = known === undefined ? 0 : (offsets.get(at(known)) ?? 0);
    return text.slice(0, offset).split('\n').length;
  };
}

function isEnd(event: Event | undefined, pop: number): boolean {
  return event === undefined || event.type === pop;
}

function startOf(event: Event | undefined): number {
  if (event === undefined) return 0;
  if ('valueStart' in event) return event.valueStart;
  return 'start' in event ? event.start : 0;
}
