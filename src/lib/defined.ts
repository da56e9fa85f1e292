/** Returns a copy without the properties that are `undefined`. */
export function defined<T extends object>(object: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  const copy: { [K in keyof T]?: Exclude<T[K], undefined> } = {};
  for (const key in object) {
    if (object[key] !== undefined) copy[key] = object[key] as Exclude<T[typeof key], undefined>;
  }
  return copy;
}
