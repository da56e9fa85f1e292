import type { KubeEvent } from '../../src/driver/events/index.ts';
import { driverName, type SimClaim } from './api-server.ts';
import type { Node, SimPod } from './world.ts';

/** Events that say why a pod does not run. */
type Said = Pick<KubeEvent, 'reason' | 'note'>;

/** Checks that after the last fault every pod runs, or that the driver has reported why it does not. */
export class Liveness {
  readonly #node: Node;
  /** By the UID of what they regard. */
  readonly #events = new Map<string, Said[]>();
  /** What the driver has answered the kubelet last, by the UID of the pod. */
  readonly #answers = new Map<string, string>();

  constructor(node: Node) {
    this.#node = node;
  }

  eventWritten({ regarding, reason, note }: KubeEvent): void {
    const known = this.#events.get(regarding.uid) ?? [];
    this.#events.set(regarding.uid, [...known, { reason, note }]);
  }

  /** The kubelet reports it as an event of the pod. */
  kubeletFailed({ uid }: SimPod, { message }: Error): void {
    this.#answers.set(uid, message.replace(/^NodePrepareResources failed for ResourceClaim \S+: /, ''));
  }

  /** From now on a reason has to be one that still holds. */
  faultsEnd(): void {
    this.#answers.clear();
  }

  /** Pods that do not run, without a reason that the driver has given. */
  *silent(): Generator<string> {
    const { pods, checks } = this.#node;
    yield* checks.waiting();
    for (const pod of pods) {
      if (pod.isDeleted) continue;
      if (!pod.isBound) yield* this.#pending(pod);
      else if (!checks.runs(pod) && !this.#isExplained(pod)) yield `${pod.uid} does not run, and nothing says why`;
    }
  }

  /** What the scheduler cannot have is in use, has a taint, or is withheld with a reason. */
  *#pending({ uid }: SimPod): Generator<string> {
    const { apiServer, hardware } = this.#node;
    const claims = [...apiServer.claims.values()];
    const taken = new Set(claims.flatMap(({ devices }) => devices.map(({ device }) => device)));
    const offered = new Set(apiServer.offered().map(({ name }) => name));
    const withheld = new Map(
      (apiServer.view?.withheld ?? []).flatMap(({ devices, reason }) => devices.map((each) => [each, reason])),
    );
    for (const { name } of hardware.vfs) {
      if (!taken.has(name) && !offered.has(name) && !withheld.get(name))
        yield `${uid} is pending, ${name} is not offered, and nothing says why`;
    }
  }

  #isExplained(pod: SimPod): boolean {
    const { apiServer, runtime } = this.#node;
    const claims = pod.claims.flatMap((name) => apiServer.claims.get(name) ?? []);
    if (this.#isElsewhere(pod, claims)) return true;
    // Its claims went to another pod, or it was evicted. The driver need not report what others decided.
    if (claims.length < pod.claims.length || claims.some(({ reservedFor }) => !reservedFor.includes(pod.uid)))
      return true;
    const containers = [...runtime.containers.values()].filter(({ sandbox }) => sandbox.pod === pod);
    const errors = [this.#answers.get(pod.uid) ?? '', ...containers.map(({ startError = '' }) => startError)];
    if (errors.some((each) => claims.some(({ name }) => each.includes(name)))) return true;
    return (
      [pod.uid, ...claims.map(({ uid }) => uid)].some((uid) => this.#events.has(uid)) ||
      claims.some((claim) => this.#isNotReady(claim))
    );
  }

  /** The runtime said that a device is not on the host, where it moves it from, and it is in a ready sandbox of another pod. */
  #isElsewhere({ uid }: SimPod, claims: readonly SimClaim[]): boolean {
    const [, name] = /^Multus: (\S+) is not on the host$/.exec(this.#answers.get(uid) ?? '') ?? [];
    if (!claims.some(({ devices }) => devices.some(({ device }) => device === name))) return false;
    const namespace = this.#node.hardware.vfs.find((vf) => vf.name === name)?.link?.namespace;
    const sandboxes = [...this.#node.runtime.sandboxes.values()];
    return sandboxes.some(({ network, pod, state }) => network === namespace && pod.uid !== uid && state === 'ready');
  }

  #isNotReady(claim: SimClaim): boolean {
    const conditions = this.#node.apiServer
      .statusOf(claim)
      .flatMap(({ driver, conditions: all = [] }) => (driver === driverName ? all : []));
    return conditions.some(({ type, status, message }) => type === 'Ready' && status === 'False' && message !== '');
  }
}
