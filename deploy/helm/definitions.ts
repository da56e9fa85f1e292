import { dump } from 'js-yaml';
import * as z from 'zod';
import { networkAddressPoolSpec } from '../../src/driver/api/address-pool.ts';
import { networkDevicePolicySpec } from '../../src/driver/api/policy-object.ts';

type Schema = z.core.JSONSchema.BaseSchema;

/** The schemas of `spec` for CustomResourceDefinitions, by the names of their files in the chart. */
export const definitions = {
  'policy-schema.yaml': networkDevicePolicySpec,
  'address-pool-schema.yaml': networkAddressPoolSpec,
};

/**
 * Renders the schema of `spec` for a CustomResourceDefinition as YAML. Structural schemas have neither
 * `additionalProperties: false`, since the API server drops unknown fields, or refuses them for clients that ask for that, nor
 * `propertyNames`. Source: apiextensions.k8s.io/v1 `JSONSchemaProps`.
 */
export function renderDefinition(spec: z.ZodType): string {
  const { $schema: _version, ...schema } = z.toJSONSchema(spec, {
    io: 'input',
    override: ({ jsonSchema }) => toStructural(jsonSchema),
  });
  return dump(schema, { lineWidth: -1, noRefs: true });
}

function toStructural(schema: Schema): void {
  if (schema.additionalProperties === false) delete schema.additionalProperties;
  if (schema.maximum === Number.MAX_SAFE_INTEGER) delete schema.maximum;
  delete schema.propertyNames;
}
