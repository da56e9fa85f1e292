import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import * as z from 'zod';
import { deviceAttributes, inventoryPolicySchema } from '../../../../src/node/inventory/index.ts';
import { TestNode } from './test-node.ts';
import { mlx5Tree } from './trees/mlx5.ts';

const repository = join(import.meta.dirname, '../../../..');
const inventory = readFileSync(join(repository, 'docs/inventory.md'), 'utf8');
/** The names in the first column of the table of attributes. */
function documentedAttributes(): string[] {
  const table = inventory.slice(inventory.indexOf('| attribute |'), inventory.indexOf('The metadata in a container'));
  const cells = table.split('\n').flatMap((line) => line.split('|')[1] ?? []);
  return cells.flatMap((cell) => [...cell.matchAll(/`([^`]+)`/g)].map(([, name = '']) => name));
}

describe('docs/inventory.md', () => {
  it('lists every attribute, and no other', async () => {
    using node = new TestNode(mlx5Tree);
    const { devices } = await node.inventory({ resourceName: 'example.com/x' }).scan();
    expect(documentedAttributes().sort()).toEqual(Object.keys(deviceAttributes(devices[0]!)).sort());
  });

  it('lists every field of the policy', () => {
    const fields = (schema: unknown): string[] =>
      schema === null || typeof schema !== 'object'
        ? []
        : Object.entries(schema).flatMap(([key, value]) => [
            ...(key === 'properties' ? Object.keys(value) : []),
            ...fields(value),
          ]);
    for (const field of new Set(fields(z.toJSONSchema(inventoryPolicySchema)))) {
      expect(inventory).toMatch(new RegExp(`\\b${field}\\b`));
    }
  });
});
