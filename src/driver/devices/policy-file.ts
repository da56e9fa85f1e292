import { readFile } from 'node:fs/promises';
import type * as z from 'zod';
import { NetdraError } from '../../lib/errors.ts';
import { type InventoryPolicy, inventoryPolicySchema } from '../../node/inventory/index.ts';
import { yamlLines } from './yaml-lines.ts';

type Issue = z.core.$ZodIssue;

/** The operator's inventory policy, a YAML or JSON file that may change while the driver runs. */
export class PolicyFile {
  readonly #path: string;
  /** Text of the policy in force. */
  #text: string | undefined;

  constructor(path: string) {
    this.#path = path;
  }

  /**
   * Reads the file and reports a new policy. If the file is rejected, the previous policy stays in force.
   * @returns why the file is rejected
   * @throws NetdraError `policy-invalid` with the field and what is allowed, if there is no previous policy
   */
  async follow(onChange: (policy: InventoryPolicy) => void): Promise<NetdraError | undefined> {
    try {
      const text = await this.#read();
      const policy = text === this.#text ? undefined : await this.#parse(text);
      this.#text = text;
      if (policy !== undefined) onChange(policy);
      return undefined;
    } catch (error) {
      if (!(error instanceof NetdraError) || this.#text === undefined) throw error;
      return error;
    }
  }

  async #read(): Promise<string> {
    try {
      return await readFile(this.#path, 'utf8');
    } catch (cause) {
      throw this.#invalid(`cannot read inventory policy ${this.#path}`, cause);
    }
  }

  async #parse(text: string): Promise<InventoryPolicy> {
    // Imported lazily: without a policy it is not needed.
    const parser = await import('js-yaml');
    let value: unknown;
    try {
      value = parser.load(text);
    } catch (cause) {
      if (!(cause instanceof parser.YAMLException)) throw cause;
      const place = cause.mark === undefined ? '' : ` (line ${cause.mark.line + 1})`;
      throw this.#invalid(`inventory policy ${this.#path} is not valid YAML: ${cause.reason}${place}`);
    }
    const result = inventoryPolicySchema.safeParse(value, { error: inPlainWords });
    if (!result.success) {
      const lineOf = yamlLines(text, parser);
      const problems = result.error.issues.flatMap((issue) => describeIssue(issue, lineOf));
      throw this.#invalid(`inventory policy ${this.#path} is invalid: ${problems.join('; ')}`);
    }
    const { apiVersion: _apiVersion, kind: _kind, ...policy } = result.data;
    return policy;
  }

  #invalid(message: string, cause?: unknown): NetdraError {
    return new NetdraError('policy-invalid', message, { cause, path: this.#path });
  }
}

/**
 * `pfs.0.select.vendor: four lower-case … (line 4)`. For a field with several forms, the one most likely meant is described.
 */
function describeIssue(
  issue: Issue,
  lineOf: (path: readonly PropertyKey[]) => number,
  above: PropertyKey[] = [],
): string[] {
  const path = [...above, ...issue.path];
  if (issue.code === 'invalid_union' && issue.errors.length > 0) {
    const depth = (issues: Issue[]) => Math.max(...issues.map((each) => each.path.length));
    const meant = issue.errors.reduce((best, each) => (depth(each) > depth(best) ? each : best));
    return meant.flatMap((each) => describeIssue(each, lineOf, path));
  }
  const line = lineOf(issue.code === 'unrecognized_keys' ? [...path, issue.keys[0] ?? ''] : path);
  return [`${path.map(String).join('.') || 'document'}: ${issue.message} (line ${line})`];
}

const kinds: Partial<Record<string, string>> = {
  ...{ array: 'a list', object: 'a map of fields', string: 'text', boolean: 'true or false' },
  ...{ int: 'a whole number', number: 'a whole number' },
};

/** What is wrong, for people who have never seen the schema. */
function inPlainWords(issue: z.core.$ZodRawIssue): string | undefined {
  switch (issue.code) {
    case 'unrecognized_keys': {
      const names = issue.keys.map((key) => JSON.stringify(key)).join(', ');
      return `there is no field ${names} here; docs/inventory.md lists the fields`;
    }
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
