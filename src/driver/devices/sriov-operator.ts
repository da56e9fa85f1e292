import {
  FollowedList,
  type FollowedListOptions,
  firstAnswers,
  type KubeApi,
  type ObjectMeta,
  plainList,
} from '../../framework/kube/index.ts';
import { isPciAddress } from '../../node/sriov/index.ts';

/** A SriovNetworkNodeState, which the operator keeps for each node. Source: sriov-network-operator, api/v1. */
interface SriovNetworkNodeState {
  metadata: ObjectMeta;
  /** Desired configuration of the node's interfaces. */
  spec?: { interfaces?: unknown };
  /** Actual configuration of the node. `syncStatus` is `Succeeded`, `InProgress` or `Failed`. */
  status?: { syncStatus?: unknown; interfaces?: unknown };
}

/** Functions that the operator is about to change. */
export interface OperatorWork {
  /** Description of the work, such as `drains the node`. */
  what: string;
  /** PCI addresses of the PFs. */
  functions: ReadonlySet<string>;
}

export interface SriovOperatorOptions
  extends Pick<FollowedListOptions<SriovNetworkNodeState>, 'clock' | 'logger' | 'random'> {
  kube: KubeApi;
  node: string;
  /** Namespace of the operator. Others may write to other namespaces. */
  namespace: string;
}

const desired = 'sriovnetwork.openshift.io/desired-state';
const current = 'sriovnetwork.openshift.io/current-state';

/**
 * Follows the work of the SR-IOV network operator on the node. Decision:
 * docs/decisions/0088-the-operator-says-when-it-changes-vfs.md
 */
export class SriovOperator implements AsyncDisposable {
  readonly #states: FollowedList<SriovNetworkNodeState>;
  readonly #options: SriovOperatorOptions;

  constructor(options: SriovOperatorOptions) {
    this.#options = options;
    const query = { fieldSelector: `metadata.name=${options.node}` };
    const path = `/apis/sriovnetwork.openshift.io/v1/namespaces/${options.namespace}/sriovnetworknodestates`;
    const source = plainList<SriovNetworkNodeState>(options.kube, { path, query });
    const what = 'the SriovNetworkNodeState of this node';
    // Once the CustomResourceDefinition is gone, the last state is dropped, since nobody could delete it any more.
    this.#states = new FollowedList({ ...options, source, what, forgetsUnserved: true });
  }

  /** Begins to follow the state. Returns when the API server has answered, after two seconds at the latest. */
  async start(): Promise<void> {
    this.#states.start();
    await firstAnswers(this.#options.clock, [this.#states]);
  }

  /** Current work of the operator; `undefined` if there is none or the state is unknown. */
  get work(): OperatorWork | undefined {
    const { namespace, node } = this.#options;
    const state = this.#states.objects?.get(`${namespace}/${node}`);
    const what = state && workIn(state);
    if (state === undefined || what === undefined) return undefined;
    const { spec, status } = state;
    // A PF whose policy was deleted is only in the status, until its VFs are removed.
    const present = listOf(status?.interfaces).filter(({ numVfs }) => Number(numVfs) > 0);
    const addresses = [...listOf(spec?.interfaces), ...present].map(({ pciAddress }) => `${pciAddress}`);
    return { what, functions: new Set(addresses.filter(isPciAddress)) };
  }

  [Symbol.asyncDispose]() {
    return this.#states[Symbol.asyncDispose]();
  }
}

/**
 * Returns the work of the operator on a node. A node that waits for its turn to be drained (`Drain_Required`, `Idle`) keeps
 * its VFs until then: pods that leave other nodes need them.
 */
function workIn({ metadata: { annotations = {} }, status }: SriovNetworkNodeState): string | undefined {
  const [wanted = 'Idle', state = 'Idle'] = [annotations[desired], annotations[current]];
  if (state === 'Draining' || state === 'DrainComplete') return 'drains the node';
  if (status?.syncStatus === 'InProgress' && wanted === 'Idle') return 'configures the node';
  return undefined;
}

function listOf(value: unknown): { pciAddress?: unknown; numVfs?: unknown }[] {
  return Array.isArray(value) ? value.map((each) => Object(each)) : [];
}
