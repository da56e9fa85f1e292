import { NetdraError } from '../../lib/errors.ts';
import { findYamlProblem } from '../../lib/json-depth.ts';
import type { TextFiles } from '../../lib/text-files.ts';
import { type InventoryPolicy, inventoryPolicySchema } from '../../node/inventory/index.ts';
import { checkSchema } from '../api/schema-faults.ts';
import { yamlPlaces } from '../api/yaml-places.ts';

/** Origin of a policy. */
export interface PolicyOrigin {
  /** Path of the policy file. */
  source?: string;
  /** Name of the NetworkDevicePolicy. */
  name?: string;
  generation?: number;
}

/**
 * Puts a policy in force; `undefined`: no policy applies, and all VFs are offered.
 * @throws NetdraError `policy-refused` if the policy does not fit the node; the previous one stays in force
 */
export type PutInForce = (policy: InventoryPolicy | undefined, origin?: PolicyOrigin) => void;

/** Source of the operator's policy, which may change while the driver runs. */
export interface PolicySource {
  /**
   * Reads the newest policy and passes it to `onChange` if it has changed.
   * @returns why the newest policy is not in force, if an earlier one is
   * @throws NetdraError if no policy is in force
   */
  follow(onChange: PutInForce): Promise<NetdraError | undefined>;
}

/** The operator's inventory policy in a YAML or JSON file, which may change while the driver runs. */
export class PolicyFile implements PolicySource {
  readonly #path: string;
  readonly #files: TextFiles;
  /** Text of the policy in force. */
  #text: string | undefined;

  constructor(path: string, files: TextFiles) {
    this.#path = path;
    this.#files = files;
  }

  /**
   * Reads the file and passes a changed policy to `onChange`. If the file is rejected, the previous policy stays in force.
   * @returns why the file is rejected
   * @throws NetdraError `policy-invalid` with the field and what is allowed, if there is no previous policy
   */
  async follow(onChange: PutInForce): Promise<NetdraError | undefined> {
    try {
      const text = await this.#read();
      const policy = text === this.#text ? undefined : await this.#parse(text);
      this.#text = text;
      if (policy !== undefined) onChange(policy, { source: this.#path });
      return undefined;
    } catch (error) {
      if (!(error instanceof NetdraError) || this.#text === undefined) throw error;
      return error;
    }
  }

  async #read(): Promise<string> {
    try {
      return await this.#files.read(this.#path);
    } catch (cause) {
      throw this.#invalid(`cannot read inventory policy ${this.#path}`, cause);
    }
  }

  async #parse(text: string): Promise<InventoryPolicy> {
    // The YAML parser is imported lazily: a node without a policy does not need it.
    const parser = await import('js-yaml');
    let value: unknown;
    try {
      value = parser.load(text);
    } catch (cause) {
      if (!(cause instanceof parser.YAMLException)) throw cause;
      const place = cause.mark === undefined ? '' : ` (line ${cause.mark.line + 1})`;
      throw this.#invalid(`inventory policy ${this.#path} is not valid YAML: ${cause.reason}${place}`);
    }
    const problem = findYamlProblem(value, text);
    if (problem !== undefined) throw this.#invalid(`inventory policy ${this.#path} ${problem}`);
    const { data, faults } = checkSchema(inventoryPolicySchema, value, 'docs/inventory.md');
    if (faults !== undefined) {
      const [placeOf] = yamlPlaces(text, parser);
      const problems = faults.map(({ field, message, path }) => {
        return `${field}: ${message} (line ${placeOf?.(path).line ?? 1})`;
      });
      throw this.#invalid(`inventory policy ${this.#path} is invalid: ${problems.join('; ')}`);
    }
    const { apiVersion: _apiVersion, kind: _kind, ...policy } = data;
    return policy;
  }

  #invalid(message: string, cause?: unknown): NetdraError {
    return new NetdraError('policy-invalid', message, { cause, path: this.#path });
  }
}
