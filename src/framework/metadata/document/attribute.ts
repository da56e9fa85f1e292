import type { DeviceAttribute, DeviceAttributes } from './document.ts';

/** Kinds of attribute values: the members of the union in Go's order. */
export const attributeKinds = ['int', 'bool', 'string', 'version', 'ints', 'bools', 'strings', 'versions'] as const;
export type AttributeKind = (typeof attributeKinds)[number];

export type PlainValue = string | boolean | number | bigint | (string | boolean | number | bigint)[];

/** Returns the value of an attribute; `undefined` for an attribute of an unknown kind. */
export function plainValue(attribute: DeviceAttribute): PlainValue | undefined {
  for (const kind of attributeKinds) if (attribute[kind] !== undefined) return attribute[kind];
  return undefined;
}

/**
 * Formats attributes as text, sorted by name: numbers in decimal, `true` and `false`, lists with commas between the values.
 * Source: KEP-5304 of October 2025, "device attributes (stringified)", which does not mention lists.
 */
export function formatAttributeStrings(attributes: DeviceAttributes): Record<string, string> {
  return mapAttributes(attributes, (value) => (Array.isArray(value) ? value.join(',') : String(value)));
}

/** Converts the value of each attribute; sorts by name and drops attributes that have no value. */
export function mapAttributes<T>(attributes: DeviceAttributes, turn: (value: PlainValue) => T): Record<string, T> {
  return Object.fromEntries(
    sortedAttributes(attributes).flatMap(([name, attribute]) => {
      const value = plainValue(attribute);
      return value === undefined ? [] : [[name, turn(value)]];
    }),
  );
}

/**
 * Returns the attributes sorted by name. Compares without destructuring, which would make two iterators for each comparison, in
 * every write of every pod.
 */
export function sortedAttributes(attributes: DeviceAttributes): [string, DeviceAttribute][] {
  return Object.entries(attributes).sort((one, other) => (one[0] < other[0] ? -1 : 1));
}
