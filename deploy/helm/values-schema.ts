import * as z from 'zod';
import { inventoryPolicySchema } from '../../src/node/inventory/index.ts';

/**
 * The chart's `inventoryPolicy`: the schema of the driver, without the fields that the chart adds. Helm cannot check all of
 * it; the driver checks the rest when it reads the policy.
 */
export function policySchema(): object {
  const chartPolicy = inventoryPolicySchema.omit({ apiVersion: true, kind: true });
  const { $schema: _version, ...schema } = z.toJSONSchema(chartPolicy, {
    io: 'input',
    override: ({ jsonSchema }) => delete jsonSchema['x-kubernetes-validations'],
  });
  const description =
    'Devices to offer: the keys of an InventoryPolicy except apiVersion and kind (docs/inventory.md).';
  return { description, ...schema };
}

/** The chart's values.schema.json with that part as it is in the driver, to be formatted. */
export function renderValuesSchema(text: string): string {
  const part = JSON.stringify(policySchema(), null, 2).replaceAll('\n', '\n    ');
  return text.replace(/^ {4}"inventoryPolicy": \{[\s\S]*?^ {4}\}/m, () => `    "inventoryPolicy": ${part}`);
}
