/**
 * Limit for levels of objects and lists in JSON from others. The deepest format that netdra reads, a CNI configuration list, has
 * fewer than ten. `JSON.stringify`, `isDeepStrictEqual` and zod need several stack frames for each level, and one of them overflows
 * the stack at some 1,500 levels; 10 KiB of opaque parameters can have 5,000.
 */
export const maxJsonDepth = 64;

/**
 * Returns whether a value has more than {@link maxJsonDepth} levels of objects and lists, or a cycle. Call this before a
 * recursive function walks JSON from others. It does not recurse, and visits each object once per level.
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

function nestedIn(values: readonly unknown[]): object[] {
  return values.filter((each): each is object => typeof each === 'object' && each !== null);
}
