import type { KubeEvent } from '../../src/driver/events/index.ts';
import type { Process } from './simulator.ts';
import type { Node } from './world.ts';

/** The driver says after 3 s of work for a pod what it is with. */
const patienceMs = 3_000;
/** Time for the event to be written. */
const writeMs = 10_000;
/** Different events about one object, of which more are dropped. */
const mostEvents = 10;

const text =
  /: (\d+) of (\d+) devices are (?:attached|prepared) after 3 s; (?:now device (\S+) \((\S+)\) of |now the driver records )?claim ([^\s,]+)/;

type Wait = Pick<KubeEvent, 'action' | 'note'> & { pod: string; process: Process };

/** What pods with slow devices are said to wait for. */
export class Waits {
  readonly #node: Node;
  readonly #onViolation: (rule: string, message: string) => void;
  readonly #waits: Wait[] = [];
  /** UIDs of pods, once for each event. */
  readonly #events: string[] = [];
  /** Of all objects, with the UID. */
  readonly #reasons = new Set<string>();

  constructor(node: Node, onViolation: (rule: string, message: string) => void) {
    this.#node = node;
    this.#onViolation = onViolation;
  }

  eventWritten({ regarding, reason, action, note }: KubeEvent, process: Process): void {
    this.#reasons.add(`${regarding.uid} ${reason}`);
    if (regarding.kind === 'Pod') this.#events.push(regarding.uid);
    if (reason !== 'WaitingForDevices') return;
    const wait = { action, note, pod: regarding.uid, process };
    const problem = this.#problemOf(wait);
    this.#waits.push(wait);
    if (problem !== undefined) this.#onViolation('wrong-wait', `${regarding.name} ${problem}: ${note}`);
  }

  /** Whether an event about the object was written. */
  hasEvent(uid: string, reason: string): boolean {
    return this.#reasons.has(`${uid} ${reason}`);
  }

  #problemOf({ action, note, pod: uid, process }: Wait): string | undefined {
    const pod = this.#node.pods.find((each) => each.uid === uid);
    const [, ready, total, device, pciAddress, claimName = ''] = text.exec(note) ?? [];
    if (pod === undefined || total === undefined) return 'has an event that cannot be understood';
    if (this.#node.simulator.nowMs < pod.plan.arrivesAtMs + patienceMs) return 'waits already';
    const plans = pod.claims.flatMap((name) => this.#node.apiServer.claims.get(name)?.plan ?? []);
    // Without those that are gone meanwhile, and whose name another one may have.
    const isComplete = plans.length === pod.claims.length && !this.#node.plan.reusesNames;
    const most = isComplete ? plans.reduce((sum, { vfs }) => sum + vfs, 0) : Number(total);
    // Where all are ready, the claim is recorded, which can wait for a lock.
    const mostReady = device === undefined ? Number(total) : Number(total) - 1;
    if (Number(ready) > mostReady || Number(total) > most) return `has ${most} devices`;
    const vf = this.#node.hardware.vfs.find(({ name }) => name === device);
    const isOurs = device === undefined || this.#node.checks.wasAllocated(device, uid);
    if (!isOurs || vf?.pciAddress !== pciAddress) return 'does not wait for this device';
    if (!pod.claims.some((name) => claimName.endsWith(`/${name}`))) return 'has no such claim';
    const { faults } = this.#node.plan;
    // What has left the pod, or is prepared anew, may be slow again.
    const isPlain = faults.every(({ kind }) => kind === 'devices slow') && pod.plan.vfLeavesTo === undefined;
    const isSame = (each: Wait) => each.pod === uid && each.action === action && each.process === process;
    return isPlain && this.#waits.some(isSame) ? 'is said to wait twice' : undefined;
  }

  /** A plugin has done its work for a sandbox. */
  pluginTook(forMs: number, sandboxId: string, process: Process): void {
    const { simulator, plan } = this.#node;
    const sandbox = this.#node.runtime.sandboxes.get(sandboxId);
    if (forMs < patienceMs + 100 || sandbox === undefined || plan.apiErrorRate > 0) return;
    const { uid } = sandbox.pod;
    simulator.schedule(writeMs, undefined, 'look for an event', () => {
      const isDue = process.isAlive && this.#node.isUndisturbedFor(writeMs + forMs + 1_000);
      const isSaid = this.#waits.some(({ pod, action }) => pod === uid && action === 'Attaching');
      const count = this.#events.filter((each) => each === uid).length;
      if (isDue && !isSaid && count < mostEvents && !sandbox.pod.isDeleted && sandbox.state === 'ready')
        this.#onViolation('no-wait', `a plugin took ${forMs} ms for ${uid}, which no event says`);
    });
  }
}
