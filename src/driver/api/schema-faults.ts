import type * as z from 'zod';

type Issue = z.core.$ZodIssue;

/** A fault in a document that a user has written. */
export interface SchemaFault {
  /** Path of the field with dots: `pfs.0.select.vendor`. */
  field: string;
  /** Description of the fault for users who do not know the schema. */
  message: string;
  /** Path of the field. */
  path: PropertyKey[];
}

/**
 * Checks a value, with messages for users who do not know its schema.
 * @param page page of the documentation that lists the fields: `docs/inventory.md`
 * @param root name of the value itself in messages
 */
export function checkSchema<T>(
  schema: z.ZodType<T>,
  value: unknown,
  page: string,
  root = 'document',
): { data: T; faults?: never } | { data?: never; faults: SchemaFault[] } {
  const result = schema.safeParse(value, { error: inPlainWords });
  return result.success
    ? { data: result.data }
    : { faults: result.error.issues.flatMap((issue) => describeIssue(issue, { page, root })) };
}

/**
 * Describes an issue. If a field has several valid forms, the description is about the form that the user most likely meant.
 */
function describeIssue(issue: Issue, names: { page: string; root: string }, above: PropertyKey[] = []): SchemaFault[] {
  const path = [...above, ...issue.path];
  if (issue.code === 'invalid_union' && issue.errors.length > 0) {
    const depth = (issues: Issue[]) => Math.max(...issues.map((each) => each.path.length));
    const meant = issue.errors.reduce((best, each) => (depth(each) > depth(best) ? each : best));
    return meant.flatMap((each) => describeIssue(each, names, path));
  }
  const field = path.map(String).join('.') || names.root;
  if (issue.code !== 'unrecognized_keys') return [{ field, message: issue.message, path }];
  return issue.keys.map((key) => {
    const message = `there is no field ${JSON.stringify(key)} here; ${names.page} lists the fields`;
    return { field, message, path: [...path, key] };
  });
}

const kinds: Partial<Record<string, string>> = {
  array: 'a list',
  object: 'a map of fields',
  string: 'text',
  boolean: 'true or false',
  int: 'a whole number',
  number: 'a whole number',
};

function inPlainWords(issue: z.core.$ZodRawIssue): string | undefined {
  switch (issue.code) {
    case 'invalid_type':
      return issue.input === undefined ? 'is missing' : `${kinds[issue.expected] ?? issue.expected} is needed`;
    case 'invalid_value':
      return `${issue.values.map((value) => JSON.stringify(value)).join(' or ')} is needed`;
    case 'too_small':
      return issue.origin === 'array' ? 'at least one entry is needed' : `must be at least ${issue.minimum}`;
    case 'too_big':
      return `must be at most ${issue.maximum}${issue.origin === 'string' ? ' characters' : ''}`;
    default:
      return undefined;
  }
}
