import { readPage, type Stage } from './stage.ts';

interface Schema {
  title?: string;
  description?: string;
  type?: string;
  $ref?: string;
  const?: unknown;
  enum?: unknown[];
  required?: string[];
  properties?: Record<string, Schema>;
  items?: Schema;
  oneOf?: Schema[];
  additionalProperties?: boolean | Schema;
  [rule: string]: unknown;
}

/** Rules of a value that the page shows as they stand in the schema. */
const limits = ['minimum', 'maximum', 'minLength', 'maxLength', 'minItems', 'maxItems', 'pattern'];

/** The JSON schema of metadata files: a table for each of its definitions, and the file itself. */
export function writeSchemaPage(stage: Stage): void {
  const text = readPage('docs/metadata.schema.json');
  const schema = JSON.parse(text) as Schema & { $defs: Record<string, Schema> };
  const parts = Object.entries(schema.$defs).map(([name, definition]) => {
    const title = definition.title === undefined ? '' : `${definition.title}. `;
    const rows = rowsOf(definition, '');
    const table = ['| field | | type | meaning |', '|---|---|---|---|', ...rows].join('\n');
    return `## ${name}\n\n${title}${definition.description ?? ''}\n\n${rows.length === 0 ? `${typeOf(definition)}.` : table}\n`;
  });
  const intro = `${schema.description} Described in [the metadata file](../metadata.md).`;
  stage.write('public/metadata.schema.json', text);
  stage.write(
    'reference/metadata-schema.md',
    `# Schema of the metadata file\n\n${intro}\nAs JSON: \`metadata.schema.json\` at the root of this site.\n\n${parts.join('\n')}`,
  );
}

/** The fields of a schema, those of objects and lists within it below their path: `requests[].name`. */
function rowsOf(schema: Schema, path: string): string[] {
  if (schema.items !== undefined) return rowsOf(schema.items, `${path}[]`);
  const own = Object.entries(schema.properties ?? {}).flatMap(([name, field]) => {
    const place = path === '' ? name : `${path}.${name}`;
    const need = schema.required?.includes(name) ? 'required' : '';
    return [`| \`${place}\` | ${need} | ${typeOf(field)} | ${field.description ?? ''} |`, ...rowsOf(field, place)];
  });
  return [...own, ...(schema.oneOf ?? []).flatMap((each) => rowsOf(each, path))];
}

function typeOf(schema: Schema): string {
  const { $ref, items, oneOf, additionalProperties } = schema;
  if ($ref !== undefined) {
    const name = $ref.replace('#/$defs/', '');
    return `[${name}](#${name.toLowerCase()})`;
  }
  if (schema.const !== undefined) return `\`${JSON.stringify(schema.const)}\``;
  if (schema.enum !== undefined) return schema.enum.map((each) => `\`${JSON.stringify(each)}\``).join(', ');
  const rules = limits
    .filter((rule) => rule in schema)
    .map((rule) => `\`${rule}: ${schema[rule]}\``.replaceAll('|', '\\|'));
  const base = oneOf !== undefined ? 'one of several' : items !== undefined ? `list of ${typeOf(items)}` : schema.type;
  const values = typeof additionalProperties === 'object' ? ` of ${typeOf(additionalProperties)}` : '';
  return [`${base ?? 'any'}${values}`, ...rules].join(', ');
}
