import {
  FollowedList,
  firstAnswers,
  isKubeError,
  type KubeApi,
  type ObjectMeta,
  plainList,
  servedVerbs,
} from '../../framework/kube/index.ts';
import { Background } from '../../lib/background.ts';
import type { Clock } from '../../lib/clock.ts';
import { errnoCode, NetdraError } from '../../lib/errors.ts';
import type { Logger } from '../../lib/logger.ts';
import type { TextFiles } from '../../lib/text-files.ts';
import { periods } from '../../lib/waiting-times.ts';
import { type InventoryPolicy, policySpecSchema } from '../../node/inventory/index.ts';
import { labelSelector } from '../api/class-config.ts';
import { matches } from '../api/namespace-rules.ts';
import { networkDevicePolicySpec } from '../api/policy-object.ts';
import { checkSchema } from '../api/schema-faults.ts';
import { PolicyFile, type PolicySource, type PutInForce } from '../devices/policy-file.ts';

const groupVersion = 'netdra.dev/v1alpha1';
const plural = 'networkdevicepolicies';
const policiesPath = `/apis/${groupVersion}/${plural}`;

/** A policy object of the API server. */
export interface NetworkDevicePolicy {
  metadata: ObjectMeta & { generation?: number };
  spec: { nodeSelector: unknown };
}

/** Last policy in force. Without a name, no object was in force. */
interface StoredChoice {
  name?: string;
  uid?: string;
  generation?: number;
  policy?: InventoryPolicy;
  /** Whether the CustomResourceDefinition was missing or terminating since the object was last seen. */
  isOrphaned?: true;
}

/** Number of times that a node reads whether the definition of a deleted object remains, before the deletion counts. */
const definitionReads = 4;

export interface PolicyObjectsOptions {
  kube: KubeApi;
  node: string;
  clock: Clock;
  logger: Logger;
  /** Returns numbers from 0 up to 1. */
  random: () => number;
  files: TextFiles;
  /** File that keeps the choice for the next start. */
  statePath: string;
  /** Path of a policy file for nodes that no object selects. */
  filePath?: string;
}

/**
 * Follows the NetworkDevicePolicy whose `nodeSelector` selects the node; if none does, the policy file. The policy in force
 * stays while the API server does not answer (also over a restart of the driver), while a newer policy is refused, and while
 * several policies select the node. Decision: docs/decisions/0044-a-policy-is-an-object.md
 */
export class PolicyObjects implements PolicySource, AsyncDisposable {
  readonly #options: PolicyObjectsOptions;
  readonly #objects: FollowedList<NetworkDevicePolicy>;
  readonly #node: FollowedList<{ metadata: ObjectMeta }>;
  readonly #background = new Background();
  #isStarted = false;
  /** Whether the object in force was deleted while its CustomResourceDefinition remained. */
  #isDeleted = false;
  /** Current choice; `undefined` if it is not known yet. */
  #choice: StoredChoice | undefined;
  /** Source of the policy while no object is in force. */
  #file: PolicySource | undefined;
  /** Whether the first decision is in force: a policy, or that there is none. */
  #isInForce = false;

  constructor(options: PolicyObjectsOptions) {
    this.#options = options;
    const { kube, node } = options;
    const policies = plainList<NetworkDevicePolicy>(kube, { path: policiesPath });
    this.#objects = new FollowedList({ ...options, source: policies, what: 'NetworkDevicePolicies' });
    const query = { fieldSelector: `metadata.name=${node}` };
    const source = plainList<{ metadata: ObjectMeta }>(kube, { path: '/api/v1/nodes', query, metadataOnly: true });
    this.#node = new FollowedList({ ...options, source, what: 'the labels of the Node' });
  }

  async follow(onChange: PutInForce): Promise<NetdraError | undefined> {
    if (!this.#isStarted) await this.#start(onChange);
    const fault = this.#choose(onChange);
    if (this.#choice === undefined) throw fault ?? this.#notReadYet();
    if (this.#choice.name !== undefined) return fault;
    const ofFile = await this.#followFile(onChange);
    return fault ?? ofFile;
  }

  async [Symbol.asyncDispose]() {
    for (const part of [this.#background, this.#objects, this.#node]) await part[Symbol.asyncDispose]();
  }

  async #start(onChange: PutInForce): Promise<void> {
    const { clock, logger, files, statePath } = this.#options;
    this.#isStarted = true;
    this.#choice = await readChoice(files, statePath, logger);
    const { policy, name, generation = 0 } = this.#choice ?? {};
    if (name !== undefined) this.#put(() => onChange(policy, { name, generation }));
    this.#objects.start();
    this.#node.start();
    if (this.#choice !== undefined) return;
    await firstAnswers(clock, [this.#objects, this.#node]);
  }

  /** Chooses the policy object from the known objects and the node's labels. @returns why the newest policy is not in force */
  #choose(onChange: PutInForce): NetdraError | undefined {
    const { objects } = this.#objects;
    const node = this.#node.objects?.get(this.#options.node);
    // A cluster without the CustomResourceDefinition has no policy objects. If one was in force, it stays: the definition was
    // lost.
    if (objects === undefined && this.#isUnserved && this.#choice === undefined) this.#keep({});
    // One answer is not enough: an API server that starts does not serve the kind for a moment.
    if (this.#objects.unserved > 1) this.#orphan();
    if (objects === undefined || node === undefined) return this.#refusedRead();
    const selecting = [...objects.values()].filter((each) => selects(each, node.metadata.labels)).sort(byName);
    const [only, ...others] = selecting;
    let fault: NetdraError | undefined;
    if (only === undefined) {
      const choice = this.#choice ?? {};
      if (this.#choice === undefined || (choice.name !== undefined && this.#isReleased(objects, choice)))
        this.#keep({});
    } else if (others.length > 0) {
      const names = selecting.map(nameOf).join(', ');
      const hint = 'change a nodeSelector or delete one of them';
      fault = new NetdraError('policy-refused', `several NetworkDevicePolicies select this node: ${names}`, { hint });
    } else fault = this.#accept(only, onChange);
    return fault ?? this.#refusedRead() ?? (only === undefined ? this.#orphaned() : undefined);
  }

  /**
   * Returns whether the object in force no longer applies: it selects other nodes now, or was deleted while its
   * CustomResourceDefinition remained. If the definition is deleted, the object stays in force, also once the definition is
   * created again: the API server first deletes all objects one by one, which looks like deletions by a user. Decision:
   * docs/decisions/0113-a-restored-definition-releases-nothing.md
   */
  #isReleased(objects: ReadonlyMap<string, NetworkDevicePolicy>, { name, uid, isOrphaned }: StoredChoice): boolean {
    const isSame = ({ metadata }: NetworkDevicePolicy) =>
      (metadata.uid ?? '') === uid || (isOrphaned === true && metadata.name === name);
    if (this.#isDeleted || [...objects.values()].some(isSame)) return true;
    if (isOrphaned !== true) void this.#background.run('', (signal) => this.#confirmDeletion(signal));
    return false;
  }

  /** Records that the definition of the object in force is missing or terminating. */
  #orphan(): void {
    if (this.#choice?.name !== undefined && this.#choice.isOrphaned !== true)
      this.#keep({ ...this.#choice, isOrphaned: true });
  }

  /** Returns the error for an object in force that was deleted with its definition. */
  #orphaned(): NetdraError | undefined {
    const { name, isOrphaned } = this.#choice ?? {};
    if (isOrphaned !== true) return undefined;
    const message = `NetworkDevicePolicy ${name} was deleted with its CustomResourceDefinition, and stays in force`;
    const hint =
      'restore it, or create a NetworkDevicePolicy that selects this node; to withdraw that one, delete it afterwards';
    return new NetdraError('policy-unread', message, { hint });
  }

  async #confirmDeletion(signal: AbortSignal): Promise<void> {
    const { kube, clock, logger, random } = this.#options;
    const choice = this.#choice;
    const waitMs = (periods.policyDeletion / definitionReads) * (1 + random());
    try {
      // Several times, since the definition may be created again at once.
      for (let read = 0; read < definitionReads; read++) {
        await clock.sleep(waitMs, signal);
        const verbs = (await servedVerbs(kube, groupVersion, { signal })).get(plural) ?? [];
        if (this.#choice !== choice) return;
        if (!verbs.includes('create')) return this.#orphan();
      }
      this.#isDeleted = true;
    } catch (err) {
      signal.throwIfAborted();
      logger.warn(
        { err },
        'cannot read whether NetworkDevicePolicies are still defined; the deleted one stays in force',
      );
    }
  }

  #accept(object: NetworkDevicePolicy, onChange: PutInForce): NetdraError | undefined {
    if (this.#isChosen(object)) {
      // Without a definition, the list is the one from before.
      const { isOrphaned, ...choice } = this.#choice ?? {};
      if (isOrphaned === true && !this.#isUnserved) this.#keep(choice);
      return undefined;
    }
    const [name, generation] = [nameOf(object), generationOf(object)];
    const { data, faults } = checkSchema(networkDevicePolicySpec, object.spec, 'docs/inventory.md', 'spec');
    if (faults !== undefined) {
      const problems = faults.map(({ field, message }) => `${field}: ${message}`).join('; ');
      const hint = 'the CustomResourceDefinition is of another version than this driver: install that of the chart';
      return new NetdraError('policy-refused', `NetworkDevicePolicy ${name} is invalid: ${problems}`, { hint });
    }
    const { nodeSelector: _nodeSelector, ...policy } = data;
    try {
      this.#put(() => onChange(policy, { name, generation }));
    } catch (error) {
      if (error instanceof NetdraError) return error;
      throw error;
    }
    this.#file = undefined;
    this.#keep({ name, generation, policy, uid: object.metadata.uid ?? '' });
    return undefined;
  }

  #put(put: () => void): void {
    put();
    this.#isInForce = true;
  }

  #isChosen({ metadata }: NetworkDevicePolicy): boolean {
    return this.#choice?.uid === metadata.uid && this.#choice?.generation === (metadata.generation ?? 0);
  }

  async #followFile(onChange: PutInForce): Promise<NetdraError | undefined> {
    const { files, filePath } = this.#options;
    this.#file ??= filePath === undefined ? noFile() : new PolicyFile(filePath, files);
    try {
      return await this.#file.follow((...args) => this.#put(() => onChange(...args)));
    } catch (error) {
      // The policy of an object that no longer selects the node stays in force until the file is readable.
      if (!(error instanceof NetdraError) || !this.#isInForce) throw error;
      return error;
    }
  }

  /**
   * Stores the choice for the next start. A failure is only logged: the next start then waits for the API server, or begins
   * with an older choice.
   */
  #keep(choice: StoredChoice): void {
    const { files, statePath, logger } = this.#options;
    this.#choice = choice;
    this.#isDeleted = false;
    try {
      files.replace(statePath, `${JSON.stringify(choice)}\n`);
    } catch (err) {
      logger.warn({ err }, 'cannot save the inventory policy in force, which the next start needs');
    }
  }

  get #isUnserved(): boolean {
    return isKubeError(this.#objects.failure, 'api-unserved');
  }

  /** Returns the error for a list that the API server refuses or does not serve. */
  #refusedRead(): NetdraError | undefined {
    const cause = [this.#objects, this.#node]
      .map(({ failure }) => failure)
      .find((failure) => isKubeError(failure, 'api-forbidden', 'api-unserved'));
    if (cause === undefined || (this.#isUnserved && this.#choice?.name === undefined)) return undefined;
    const hint =
      'compare role and CustomResourceDefinitions with those of the chart, or set its value policyObjects.enabled to false';
    return new NetdraError('policy-unread', 'NetworkDevicePolicies cannot be read', { cause, hint });
  }

  #notReadYet(): NetdraError {
    const cause = this.#objects.failure ?? this.#node.failure;
    const hint = 'the driver waits until the API server answers';
    const details = { cause, hint, retriable: true };
    return new NetdraError('policy-unread', 'NetworkDevicePolicies are not known yet', details);
  }
}

/**
 * Returns whether a policy selects the node. A selector that this version cannot parse counts as selecting: the policy is
 * then refused.
 */
function selects({ spec }: NetworkDevicePolicy, labels: Record<string, string> = {}): boolean {
  const selector = labelSelector.safeParse(spec.nodeSelector);
  return !selector.success || matches(labels, selector.data);
}

const nameOf = ({ metadata }: NetworkDevicePolicy) => metadata.name ?? '';
const generationOf = ({ metadata }: NetworkDevicePolicy) => metadata.generation ?? 0;
const byName = (a: NetworkDevicePolicy, b: NetworkDevicePolicy) => (nameOf(a) < nameOf(b) ? -1 : 1);

/** Returns a source without a policy. It reports the absence of a policy once. */
function noFile(): PolicySource {
  let isReported = false;
  return {
    follow: async (onChange) => {
      if (!isReported) onChange(undefined);
      isReported = true;
      return undefined;
    },
  };
}

/** Reads the stored choice. @returns `undefined` if the file is missing or damaged */
async function readChoice(files: TextFiles, path: string, logger: Logger): Promise<StoredChoice | undefined> {
  try {
    const choice: StoredChoice = JSON.parse(await files.read(path));
    if (choice.name === undefined) return {};
    return { ...choice, policy: policySpecSchema.parse(choice.policy) };
  } catch (err) {
    if (errnoCode(err) !== 'ENOENT')
      logger.warn({ err }, 'cannot read the inventory policy that an earlier start has saved');
    return undefined;
  }
}
