/** Returns a deep copy of plain data: objects and lists. `structuredClone` takes several times as long. */
export function copyOf<T>(value: T): T {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map(copyOf) as T;
  const copy = { ...value };
  for (const key in copy) copy[key] = copyOf(copy[key]);
  return copy;
}
