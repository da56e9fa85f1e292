import { readFileSync } from 'node:fs';
import { loadYaml } from '@kubernetes/client-node';
import * as z from 'zod';

/** A part of the schema of the chart's values. */
export interface ValueSchema {
  properties?: Record<string, ValueSchema>;
  required?: string[];
}

type Values = Record<string, unknown>;

const read = (name: string) => readFileSync(new URL(`../../../deploy/helm/netdra/${name}`, import.meta.url), 'utf8');

export const valuesSchema = JSON.parse(read('values.schema.json')) as ValueSchema;
export const defaultValues = loadYaml<Values>(read('values.yaml'));

const parser = z.fromJSONSchema(valuesSchema as z.core.JSONSchema.BaseSchema);

/** Checks values as Helm does: merged with the defaults, of which null removes one. */
export function checkValues(values: unknown): z.ZodSafeParseResult<unknown> {
  return parser.safeParse(isObject(values) ? merge(defaultValues, values) : values);
}

export const isObject = (value: unknown): value is Values =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

function merge(defaults: Values, values: Values): Values {
  const merged = Object.entries({ ...defaults, ...values }).map(([key, value]) => {
    const before = defaults[key];
    return [key, isObject(before) && isObject(value) ? merge(before, value) : value] as const;
  });
  return Object.fromEntries(merged.filter(([, value]) => value !== null));
}
