import { readFile } from 'node:fs/promises';
import { loadYaml } from '@kubernetes/client-node';
import { NetdraError } from './errors.ts';
import { type InventoryPolicy, inventoryPolicySchema } from './sriov/index.ts';

/** The operator's inventory policy, a YAML or JSON file that may change while the driver runs. */
export class PolicyFile {
  readonly #path: string;
  #text: string | undefined;

  constructor(path: string) {
    this.#path = path;
  }

  /**
   * Reads the file and tells of a policy that is new. With an error, the one that was told last stays in force.
   * @throws NetdraError `policy-invalid` with the field and what is allowed
   */
  async follow(onChange: (policy: InventoryPolicy) => void): Promise<void> {
    const text = await this.#read();
    if (text === this.#text) return;
    onChange(this.#parse(text));
    this.#text = text;
  }

  async #read(): Promise<string> {
    try {
      return await readFile(this.#path, 'utf8');
    } catch (cause) {
      throw new NetdraError('policy-invalid', `cannot read inventory policy ${this.#path}`, {
        cause,
        path: this.#path,
      });
    }
  }

  #parse(text: string): InventoryPolicy {
    let value: unknown;
    try {
      value = loadYaml(text);
    } catch (cause) {
      throw new NetdraError('policy-invalid', `inventory policy ${this.#path} is no YAML`, { cause, path: this.#path });
    }
    const result = inventoryPolicySchema.safeParse(value);
    if (result.success) return result.data.pfs === undefined ? {} : { pfs: result.data.pfs };
    const problems = result.error.issues.map(({ path, message }) => `${path.join('.') || 'document'}: ${message}`);
    throw new NetdraError('policy-invalid', `inventory policy ${this.#path} is invalid: ${problems.join('; ')}`, {
      path: this.#path,
    });
  }
}
