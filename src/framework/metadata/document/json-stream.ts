import { maxJsonDepth } from '../../../lib/json-depth.ts';
import { MetadataError } from '../errors.ts';

/** `JSON.rawJSON`, which Node.js has since 21 and TypeScript's library does not declare yet. */
const { rawJSON } = JSON as typeof JSON & { rawJSON(text: string): unknown };
type SourceReviver = (this: unknown, key: string, value: unknown, context: { source?: string }) => unknown;

/**
 * Serializes with the same bytes as Go's `json.MarshalIndent` with two spaces. Unlike `JSON.stringify`, this escapes `<`, `>`,
 * `&` and the two Unicode line separators.
 */
export function formatGoJson(value: unknown): string {
  return formatExactJson(value).replace(
    /[<>&\u2028\u2029]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** Formats JSON with two spaces and all digits of a `bigint`. */
export function formatExactJson(value: unknown): string {
  try {
    return JSON.stringify(value, undefined, 2);
  } catch {
    // The value contains a `bigint`, which is rare. Checking every value for one would take as long as the rest.
    const exact = (_key: string, each: unknown) => (typeof each === 'bigint' ? rawJSON(each.toString()) : each);
    return JSON.stringify(value, exact, 2);
  }
}

/** Parses one JSON value; whole numbers that a `number` cannot hold exactly become a `bigint`. @throws SyntaxError */
export function parseExactJson(text: string): unknown {
  // The reviver makes parsing slow, and is needed only for numbers with 16 digits or more, which are rare.
  return /\d{16}/.test(text) ? JSON.parse(text, reviveExact as Parameters<typeof JSON.parse>[1]) : JSON.parse(text);
}

const reviveExact: SourceReviver = (_key, value, { source = '' }) =>
  typeof value === 'number' && !Number.isSafeInteger(value) && /^-?\d{1,19}$/.test(source) ? BigInt(source) : value;

/**
 * Splits a stream of JSON objects that only white space separates, and parses each object.
 * @throws MetadataError `metadata-malformed` with the offset of the invalid object
 */
export function parseJsonStream(text: string): Record<string, unknown>[] {
  const objects: Record<string, unknown>[] = [];
  let start = skipSpace(text, 0);
  while (start < text.length) {
    const end = endOfObject(text, start);
    try {
      objects.push(parseExactJson(text.slice(start, end)) as Record<string, unknown>);
    } catch (cause) {
      throw new MetadataError('metadata-malformed', `no JSON object at offset ${start}`, { cause });
    }
    start = skipSpace(text, end);
  }
  return objects;
}

function skipSpace(text: string, from: number): number {
  let at = from;
  while (at < text.length && ' \t\r\n'.includes(text[at]!)) at++;
  return at;
}

/**
 * Returns the offset after the bracket that closes the object at `start`. Does not check the content, which JSON.parse does.
 */
function endOfObject(text: string, start: number): number {
  if (text[start] !== '{') throw new MetadataError('metadata-malformed', `no JSON object at offset ${start}`);
  let depth = 0;
  let inString = false;
  for (let at = start; at < text.length; at++) {
    const character = text[at];
    if (inString) {
      if (character === '\\') at++;
      else if (character === '"') inString = false;
    } else if (character === '"') inString = true;
    else if (character === '{' || character === '[') {
      if (++depth > maxJsonDepth) {
        throw new MetadataError(
          'metadata-malformed',
          `the JSON object at offset ${start} is nested more than ${maxJsonDepth} levels deep`,
        );
      }
    } else if ((character === '}' || character === ']') && --depth === 0) return at + 1;
  }
  throw new MetadataError('metadata-malformed', `the JSON object at offset ${start} does not end`);
}
