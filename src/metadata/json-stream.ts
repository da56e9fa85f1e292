import { MetadataError } from './errors.ts';

/**
 * Serializes as Go's `json.MarshalIndent` with two spaces does, so that our bytes equal the Go helper's for the same
 * content: `<`, `>`, `&` and the two Unicode line separators are escaped, which `JSON.stringify` does not do.
 */
export function formatGoJson(value: unknown): string {
  return JSON.stringify(value, null, 2).replace(
    /[<>&\u2028\u2029]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/**
 * Splits a stream of JSON objects (white space between them, nothing else) and parses each.
 * @throws MetadataError `metadata-malformed` with the offset of the object that is not one
 */
export function parseJsonStream(text: string): Record<string, unknown>[] {
  const objects: Record<string, unknown>[] = [];
  let start = skipSpace(text, 0);
  while (start < text.length) {
    const end = endOfObject(text, start);
    try {
      objects.push(JSON.parse(text.slice(start, end)) as Record<string, unknown>);
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

/** The offset behind the `}` that closes the object at `start`. What is inside is for JSON.parse to judge. */
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
    else if (character === '{') depth++;
    else if (character === '}' && --depth === 0) return at + 1;
  }
  throw new MetadataError('metadata-malformed', `the JSON object at offset ${start} does not end`);
}
