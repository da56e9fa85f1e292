/** A copy without the properties that are `undefined`. */
export function defined<T extends object>(object: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  const copy: { [K in keyof T]?: Exclude<T[K], undefined> } = {};
  for (const name of Object.keys(object) as (keyof T)[]) {
    if (object[name] !== undefined) copy[name] = object[name] as Exclude<T[keyof T], undefined>;
  }
  return copy;
}
