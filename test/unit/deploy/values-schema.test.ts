import { describe, expect, it } from 'vitest';
import * as z from 'zod';
import { checkValues, defaultValues, isObject, type ValueSchema, valuesSchema } from './values-schema.ts';

/** Sections of classes: the templates leave out a class whose section is null. */
const removable = ['global', 'deviceClasses.kernel', 'deviceClasses.dpdk', 'deviceClasses.nic'];

/** The values of the chart with their schemas, sections as well. */
function listValues(schema: ValueSchema, values: object, path = ''): [string, ValueSchema, unknown][] {
  return Object.entries(values).flatMap(([key, value]) => {
    const inner = schema.properties?.[key];
    if (inner === undefined) return [];
    return [[`${path}${key}`, inner, value], ...(isObject(value) ? listValues(inner, value, `${path}${key}.`) : [])];
  });
}

const at = (path: string, value: unknown) =>
  path.split('.').reduceRight<unknown>((inner, key) => ({ [key]: inner }), value);

/** Whether "nothing" is a value: the empty text, list or object fits the schema. Sections never are. */
function mayBeEmpty(schema: ValueSchema, value: unknown): boolean {
  if (isObject(value)) return schema.properties === undefined || Object.keys(value).length === 0;
  const empty = Array.isArray(value) ? [] : '';
  return z.fromJSONSchema(schema as z.core.JSONSchema.BaseSchema).safeParse(empty).success;
}

describe("the schema of the chart's values", () => {
  // References to $defs are for labels, and for the numbers of nodes of an update.
  const values = listValues(valuesSchema, defaultValues).filter(([, schema]) => !('$ref' in schema));
  const update = 'kubeletPlugin.updateStrategy';
  const optional = (path: string, schema: ValueSchema, value: unknown) =>
    removable.includes(path) || (path.startsWith(update) ? !/\.max\w+$/.test(path) : mayBeEmpty(schema, value));

  it.each(values)('accepts null for %s only if the value may be empty', (path, schema, value) => {
    expect(checkValues(at(path, null)).success).toBe(optional(path, schema, value));
  });

  it('describes both the sections and the single values of values.yaml', () => {
    const paths = values.map(([path]) => path);
    expect(paths).toEqual(
      expect.arrayContaining(['http', 'http.tls', 'image', 'driverName', 'kubeletPlugin.metadataLayouts', 'http.port']),
    );
  });

  it.each<[object, boolean]>([
    [{ maxSurge: 1, maxUnavailable: 0 }, true],
    [{ maxSurge: 0, maxUnavailable: '25%' }, true],
    [{ maxSurge: '0%', maxUnavailable: 1 }, true],
    [{ maxSurge: 0 }, false],
    [{ maxUnavailable: 1 }, false],
    [{ maxSurge: '1' }, false],
    [{ maxSurge: '101%' }, false],
    [{ maxSurges: 1 }, false],
  ])('accepts the update strategy %j only if Kubernetes accepts it: %j', (rollingUpdate, isValid) => {
    expect(checkValues({ kubeletPlugin: { updateStrategy: { rollingUpdate } } }).success).toBe(isValid);
  });

  it.each<[object, boolean]>([
    [{ name: 'A', value: '1' }, true],
    [{ name: 'A', valueFrom: { fieldRef: { fieldPath: 'metadata.name' } } }, true],
    [{ name: 'A', value: 1 }, false],
    [{ name: 'A', value: true }, false],
    [{ name: 'A', valu: '1' }, false],
  ])('accepts the environment variable %j only if Kubernetes accepts it: %j', (entry, isValid) => {
    expect(checkValues({ kubeletPlugin: { extraEnv: [entry] } }).success).toBe(isValid);
  });
});
