import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import * as client from '@kubernetes/client-node';

interface Attribute {
  name: string;
  baseName: string;
  type: string;
}

const modelsDir = join(dirname(createRequire(import.meta.url).resolve('@kubernetes/client-node')), 'gen/models');
const scalars: Record<string, (value: unknown) => boolean> = {
  string: (value) => typeof value === 'string',
  number: (value) => typeof value === 'number',
  boolean: (value) => typeof value === 'boolean',
  IntOrString: (value) => typeof value === 'string' || typeof value === 'number',
  Date: (value) => value instanceof Date || typeof value === 'string',
  any: () => true,
  object: () => true,
};

/**
 * What of an object does not fit the types that Kubernetes' OpenAPI description has for it, from which the API client
 * was generated: unknown fields, values of another type, required fields that are not there. Not what the server
 * checks beyond its schemas, such as formats and values.
 * @param type as the client names it, such as `V1DaemonSet`
 */
export function findTypeProblems(object: unknown, type: string, path = ''): string[] {
  const scalar = scalars[type];
  if (scalar !== undefined) return scalar(object) ? [] : [`${path}: is no ${type}`];
  const [, item] = /^Array<(.*)>$/.exec(type) ?? [];
  if (item !== undefined) {
    if (!Array.isArray(object)) return [`${path}: is no list`];
    return object.flatMap((each, index) => findTypeProblems(each, item, `${path}[${index}]`));
  }
  if (typeof object !== 'object' || object === null || Array.isArray(object)) return [`${path}: is no object`];
  const [, value] = /^\{ \[key: string\]: (.*); \}$/.exec(type) ?? [];
  if (value !== undefined) {
    return Object.entries(object).flatMap(([key, each]) => findTypeProblems(each, value, `${path}.${key}`));
  }
  const model = (client as unknown as Record<string, { getAttributeTypeMap?: () => Attribute[] }>)[type];
  const attributes = model?.getAttributeTypeMap?.();
  if (attributes === undefined) throw new Error(`no type ${type}, for ${path}`);
  const unknown = Object.keys(object).filter((key) => !attributes.some(({ baseName }) => baseName === key));
  return [
    ...unknown.map((key) => `${path}.${key}: no such field`),
    ...requiredFields(type)
      .filter((name) => !(name in object))
      .map((name) => `${path}.${name}: is required`),
    ...attributes
      .filter(({ baseName }) => baseName in object)
      .flatMap((each) =>
        findTypeProblems((object as Record<string, unknown>)[each.baseName], each.type, `${path}.${each.baseName}`),
      ),
  ];
}

/** The generated declarations have `'name': string` where the schema requires it, `'name'?:` otherwise. */
function requiredFields(type: string): string[] {
  const text = readFileSync(join(modelsDir, `${type}.d.ts`), 'utf8');
  return [...text.matchAll(/^ {4}'(\w+)':/gm)].map(([, name = '']) => name);
}
