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
  /** What the operator has to configure. */
  spec?: { interfaces?: unknown };
  /** What the node has. `syncStatus`: `Succeeded`, `InProgress`, `Failed`. */
  status?: { syncStatus?: unknown; interfaces?: unknown };
}

/** Functions that the operator is about to change. */
export interface OperatorWork {
  /** What it does: `drains the node`. */
  what: string;
  /** PCI addresses of the PFs. */
  functions: ReadonlySet<string>;
}

export interface SriovOperatorOptions
  extends Pick<FollowedListOptions<SriovNetworkNodeState>, 'clock' | 'logger' | 'random'> {
  kube: KubeApi;
  node: string;
}

const desired = 'sriovnetwork.openshift.io/desired-state';
const current = 'sriovnetwork.openshift.io/current-state';

/**
 * Follows what the SR-IOV network operator does on the node. Decision: docs/decisions/0088-the-operator-says-when-it-changes-vfs.md
 */
export class SriovOperator implements AsyncDisposable {
  readonly #states: FollowedList<SriovNetworkNodeState>;
  readonly #options: SriovOperatorOptions;

  constructor(options: SriovOperatorOptions) {
    this.#options = options;
    const query = { fieldSelector: `metadata.name=${options.node}` };
    const path = '/apis/sriovnetwork.openshift.io/v1/sriovnetworknodestates';
    const source = plainList<SriovNetworkNodeState>(options.kube, { path, query });
    const what = 'the SriovNetworkNodeState of this node';
    // Without its definition the last state could not be deleted.
    this.#states = new FollowedList({ ...options, source, what, forgetsUnserved: true });
  }

  /** Returns as soon as the API server has answered, and after two seconds at the latest. */
  async start(): Promise<void> {
    this.#states.start();
    await firstAnswers(this.#options.clock, [this.#states]);
  }

  /** What the operator does now; `undefined`: nothing, or that is unknown. */
  get work(): OperatorWork | undefined {
    const state = this.#states.objects?.get(this.#options.node);
    const what = state && workIn(state);
    if (state === undefined || what === undefined) return undefined;
    const { spec, status } = state;
    // A PF whose policy has gone is only in the status, until its VFs are gone.
    const present = listOf(status?.interfaces).filter(({ numVfs }) => Number(numVfs) > 0);
    const addresses = [...listOf(spec?.interfaces), ...present].map(({ pciAddress }) => `${pciAddress}`);
    return { what, functions: new Set(addresses.filter(isPciAddress)) };
  }

  [Symbol.asyncDispose]() {
    return this.#states[Symbol.asyncDispose]();
  }
}

/**
 * Returns what the operator does on a node. A node that waits for its turn to be drained (`Drain_Required`, `Idle`) keeps its
 * VFs until then: pods that leave the other nodes need them.
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
