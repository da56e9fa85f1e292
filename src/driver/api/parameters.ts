/**
 * Cached texts of opaque parameters, for comparing them. All requests of a claim have the same entries, up to 32 of 10 KiB;
 * the caches of texts and configurations serialize and parse each entry once. Objects from the API server never change.
 */
const texts = new WeakMap<object, string>();
const configs = new WeakMap<object, Map<unknown, unknown>>();

/**
 * Parses parameters once for each schema. @returns the first result of `parse` for these parameters and this schema;
 * exceptions are not cached
 */
export function parsedOnce<T>(parameters: unknown, schema: unknown, parse: () => T): T {
  if (!isObject(parameters)) return parse();
  const bySchema = configs.get(parameters) ?? new Map<unknown, unknown>();
  configs.set(parameters, bySchema);
  if (!bySchema.has(schema)) bySchema.set(schema, parse());
  return bySchema.get(schema) as T;
}

/**
 * Returns the parameters without those that are repeated later, which changes nothing, since later ones win. The schedulers
 * of Kubernetes 1.34 to 1.36 repeat an entry of a claim in the allocation, once for each request that the entry names.
 */
export function withoutRepeats(parameters: readonly unknown[]): unknown[] {
  const later = new Set<string>();
  const isLast = (each: unknown) => {
    const text = textOf(each);
    return !later.has(text) && later.add(text) !== undefined;
  };
  return parameters.toReversed().filter(isLast).toReversed();
}

/** Returns whether two lists have equal parameters in the same order. */
export function areEqual(one: readonly unknown[], other: readonly unknown[]): boolean {
  return one.length === other.length && one.every((each, index) => textOf(each) === textOf(other[index]));
}

/** Returns the value as JSON with sorted keys: equal values have equal texts, whatever the order of their keys. */
function textOf(value: unknown): string {
  if (!isObject(value)) return JSON.stringify(value) ?? '';
  const known = texts.get(value);
  if (known !== undefined) return known;
  const text = JSON.stringify(value, (_, each: unknown) => (isRecord(each) ? withSortedKeys(each) : each));
  texts.set(value, text);
  return text;
}

function withSortedKeys(value: Record<string, unknown>): Record<string, unknown> {
  // The object has no prototype, so that a key __proto__ stays an ordinary key.
  return Object.assign(
    Object.create(null),
    Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1))),
  );
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return isObject(value) && !Array.isArray(value);
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}
