/**
 * Limit for nested objects and lists in foreign JSON. The deepest format that netdra reads, a CNI configuration list, has
 * fewer than ten levels. `JSON.stringify`, `isDeepStrictEqual` and zod need several stack frames for each level, and one of
 * them overflows the stack at some 1,500 levels; 10 KiB of opaque parameters can have 5,000.
 */
export const maxJsonDepth = 64;

/**
 * Returns whether a value is nested deeper than {@link maxJsonDepth}, or contains a cycle. Call it before a recursive
 * function walks foreign JSON. It does not recurse, and visits each object once per level.
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
 * Limit for the values of a YAML document with all aliases expanded, unless its text is longer. No file for netdra has as
 * many.
 */
export const mostExpandedValues = 100_000;

/**
 * Returns why foreign YAML must not be walked: it is nested too deep, or its aliases make it larger than its text. Ten
 * short lines can stand for billions of values. The parser shares the value of an alias, so this visits each object once
 * per level.
 * @param value of one document
 */
export function findYamlProblem(value: unknown, text: string): string | undefined {
  if (isTooDeep(value)) return `is nested more than ${maxJsonDepth} levels deep`;
  const most = Math.max(mostExpandedValues, text.length);
  if (countValues(value, new Map()) <= most) return undefined;
  return `has more than ${most} values when its aliases are expanded: use fewer aliases`;
}

/** @param value not nested too deep @param known objects that were counted */
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
