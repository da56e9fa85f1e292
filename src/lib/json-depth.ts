/**
 * Limit for nested objects and lists in JSON from outside. The deepest format that netdra reads, a CNI configuration list, has
 * fewer than ten levels. `JSON.stringify`, `isDeepStrictEqual` and zod use several stack frames for each level; the first of
 * them overflows the stack at some 1,500 levels, and 10 KiB of opaque parameters can have 5,000.
 */
export const maxJsonDepth = 64;

/**
 * Returns whether a value is nested deeper than {@link maxJsonDepth}, or contains a cycle. Call it before a recursive function
 * walks JSON from outside. Works without recursion, and visits each object once per level.
 */
export function isTooDeep(value: unknown): boolean {
  let level = new Set(nestedIn([value]));
  for (let depth = 0; level.size > 0; depth++) {
    if (depth === maxJsonDepth) return true;
    const next = new Set<object>();
    for (const each of level) for (const nested of nestedIn(Object.values(each))) next.add(nested);
    level = next;
  }
  return false;
}

/**
 * Number of values that a YAML document may have with all aliases expanded; a longer text may have one value per character. Far
 * above any file for netdra.
 */
export const mostExpandedValues = 100_000;

/**
 * Returns the reason why YAML from outside must not be walked: it is nested too deep, or its aliases make it larger than its
 * text. Ten short lines can stand for billions of values. The parser shares the value of an alias, so that the check visits
 * each object once per level.
 * @param value parsed value of one document
 */
export function findYamlProblem(value: unknown, text: string): string | undefined {
  if (isTooDeep(value)) return `is nested more than ${maxJsonDepth} levels deep`;
  const most = Math.max(mostExpandedValues, text.length);
  if (countValues(value, new Map()) <= most) return undefined;
  return `has more than ${most} values when its aliases are expanded: use fewer aliases`;
}

/** Counts values with all aliases expanded. @param value value that is not nested too deep @param known counts by object */
function countValues(value: unknown, known: Map<object, number>): number {
  if (typeof value !== 'object' || value === null) return 1;
  let count = known.get(value);
  if (count !== undefined) return count;
  count = 1;
  for (const each of Object.values(value)) count += countValues(each, known);
  known.set(value, count);
  return count;
}

function nestedIn(values: readonly unknown[]): object[] {
  return values.filter((each): each is object => typeof each === 'object' && each !== null);
}
