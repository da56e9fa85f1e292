/**
 * Levels of objects and lists that JSON of others may have. The deepest that is ours, a CNI configuration list, has fewer than
 * ten. Walking a level costs several frames of the stack in `JSON.stringify`, `isDeepStrictEqual` and zod, and the stack
 * ends at some 1,500 levels of the hungriest of them; 10 KiB of opaque parameters hold 5,000.
 */
export const maxJsonDepth = 64;

/**
 * Reports whether a value has more than {@link maxJsonDepth} levels of objects and lists, a value in a cycle included. To be
 * asked before anything recursive walks JSON that others have written. It does not recurse, and looks at each object
 * once a level.
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
