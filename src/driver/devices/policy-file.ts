import { readFile } from 'node:fs/promises';
import type * as z from 'zod';
import { NetdraError } from '../../lib/errors.ts';
import { type InventoryPolicy, inventoryPolicySchema } from '../../node/inventory/index.ts';

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
    const { load } = await import('js-yaml');
    let value: unknown;
    try {
      value = load(text);
    } catch (cause) {
      throw this.#invalid(`inventory policy ${this.#path} is not valid YAML`, cause);
    }
    const result = inventoryPolicySchema.safeParse(value);
    if (!result.success) {
      const problems = result.error.issues.flatMap((issue) => describeIssue(issue));
      throw this.#invalid(`inventory policy ${this.#path} is invalid: ${problems.join('; ')}`);
    }
    const { apiVersion: _apiVersion, kind: _kind, ...policy } = result.data;
    return policy;
  }

  #invalid(message: string, cause?: unknown): NetdraError {
    return new NetdraError('policy-invalid', message, { cause, path: this.#path });
  }
}

/** `pfs.0.select.vendor: four lower-case …`. For a field with several forms, the one most likely meant is described. */
function describeIssue(issue: Issue, above: PropertyKey[] = []): string[] {
  const path = [...above, ...issue.path];
  if (issue.code === 'invalid_union' && issue.errors.length > 0) {
    const depth = (issues: Issue[]) => Math.max(...issues.map((each) => each.path.length));
    const meant = issue.errors.reduce((best, each) => (depth(each) > depth(best) ? each : best));
    return meant.flatMap((each) => describeIssue(each, path));
  }
  return [`${path.map(String).join('.') || 'document'}: ${issue.message}`];
}
