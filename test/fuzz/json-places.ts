/** What is larger is not looked at as a whole. */
const maxPlaces = 2000;

/** A place in a JSON value: what holds it, and under which key. */
export interface Place {
  parent: Record<string, unknown> | unknown[];
  key: string | number;
}

/** Every place in a value, the outer ones first. */
export function placesIn(value: unknown, places: Place[] = []): Place[] {
  if (typeof value !== 'object' || value === null) return places;
  const parent = value as Place['parent'];
  for (const key of Array.isArray(parent) ? parent.keys() : Object.keys(parent)) {
    if (places.length >= maxPlaces) break;
    places.push({ parent, key });
    placesIn(get({ parent, key }), places);
  }
  return places;
}

export function get({ parent, key }: Place): unknown {
  return (parent as Record<string | number, unknown>)[key];
}

/** As JSON.parse does it: `__proto__` is a key as any other. */
export function put({ parent, key }: Place, value: unknown): void {
  Object.defineProperty(parent, key, { value, writable: true, enumerable: true, configurable: true });
}

export function remove({ parent, key }: Place): void {
  if (Array.isArray(parent)) parent.splice(Number(key), 1);
  else delete parent[key];
}
