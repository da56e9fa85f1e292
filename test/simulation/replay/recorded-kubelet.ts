import { Kubelet } from '../kubelet.ts';
import type { SimSandbox } from '../runtime.ts';
import type { Node, SimPod } from '../world.ts';
import type { Step, Story } from './story.ts';

/** A kubelet that makes the calls of a recording, each not before its time, and afterwards does the usual. */
export class RecordedKubelet extends Kubelet {
  readonly #story: Story;
  /** By id as recorded. */
  readonly sandboxes = new Map<string, SimSandbox>();
  /** Pods whose steps, or whose containers in the start gate, it still waits for. */
  readonly #busy = new Map<SimPod, number>();

  constructor(node: Node, story: Story) {
    super(node);
    this.#story = story;
  }

  override start(): void {
    const { simulator, pods } = this.node;
    const { steps, endMs } = this.#story;
    simulator.schedule(0, this.process, 'recording begins', () => {
      for (const [index, pod] of pods.entries()) {
        const own = steps.filter((step) => step.pod === index);
        this.#work(pod, () => this.#play(pod, own));
      }
    });
    simulator.schedule(endMs, this.process, 'recording ends', () => super.start());
  }

  protected override look(pod: SimPod): void {
    if (this.node.simulator.nowMs >= this.#story.endMs && !this.#busy.has(pod)) super.look(pod);
  }

  /** The UID of a claim in the simulation. */
  uidOf(pod: SimPod, claimUid: string): string | undefined {
    const number = this.#story.claimUids[this.node.pods.indexOf(pod)]?.indexOf(claimUid) ?? -1;
    return this.node.apiServer.claims.get(pod.claims[number] ?? '')?.uid;
  }

  /** By UID of a claim or id of a sandbox in the simulation: as recorded. */
  names(): Map<string, string> {
    const { pods } = this.node;
    const claims = this.#story.claimUids.flatMap((uids, index) => {
      return uids.map((uid, number): [string, string] => [`uid-${pods[index]?.claims[number]}`, uid]);
    });
    return new Map([...claims, ...[...this.sandboxes].map(([id, sandbox]): [string, string] => [sandbox.id, id])]);
  }

  #work(pod: SimPod, task: () => Promise<void>): void {
    const count = (change: number) => {
      const left = (this.#busy.get(pod) ?? 0) + change;
      if (left === 0) this.#busy.delete(pod);
      else this.#busy.set(pod, left);
    };
    count(1);
    this.inBackground(task().finally(() => count(-1)));
  }

  async #play(pod: SimPod, steps: readonly Step[]): Promise<void> {
    const { simulator } = this.node;
    const last = steps.findLast(({ does }) => does === 'unprepare');
    for (const step of steps) {
      const waitMs = step.atMs - simulator.nowMs;
      if (waitMs > 0) await this.process.sleep(waitMs, 'wait for the next recorded call');
      const what = `${step.does} ${'sandboxId' in step ? step.sandboxId : step.claimUids.join()}`;
      simulator.trace('recording', what);
      await this.#do(pod, step).catch((error: Error) =>
        simulator.trace('recording', `${what} fails: ${error.message}`),
      );
      // Its devices are free for the next pod.
      if (step === last && pod.isDeleted) this.node.releaseClaims(pod);
    }
  }

  async #do(pod: SimPod, step: Step): Promise<void> {
    const { runtime } = this.node;
    switch (step.does) {
      case 'prepare':
        // Until the driver has published its devices, the scheduler cannot allocate them.
        while (!pod.isBound) await this.process.sleep(pollMs, 'wait for the allocation');
        for (const claim of this.#claimsOf(pod, step.claimUids)) this.infoOf(claim).ids = undefined;
        return void (await this.prepare(pod, pod.cancel.signal));
      case 'unprepare':
        for (const claim of this.#claimsOf(pod, step.claimUids)) {
          this.infoOf(claim).pods.delete(pod.uid);
          await this.unprepare(claim.uid);
        }
        return;
      case 'run':
        return await this.#call('RunPodSandbox', (signal) => {
          const made = runtime.runPodSandbox(pod, signal);
          this.sandboxes.set(step.sandboxId, [...runtime.sandboxes.values()].at(-1) as SimSandbox);
          return made;
        });
      case 'stop':
        return await this.#call('StopPodSandbox', (signal) => runtime.stopPodSandbox(this.#idOf(step), signal));
      case 'remove':
        return await this.#call('RemovePodSandbox', (signal) => runtime.removePodSandbox(this.#idOf(step), signal));
      case 'create': {
        const ids = step.hasDevices ? this.#idsOf(pod) : [];
        const id = await this.runtimeCall('CreateContainer', callMs, undefined, (signal) =>
          runtime.createContainer(this.#idOf(step), ids, signal),
        );
        // It may wait in the start gate, while the pod goes on.
        const starts = () => this.#call('StartContainer', (signal) => runtime.startContainer(id, signal));
        this.#work(pod, () => starts().catch((error: Error) => this.node.simulator.trace('recording', error.message)));
      }
    }
  }

  async #call(what: string, handle: (signal: AbortSignal) => Promise<unknown>): Promise<void> {
    await this.runtimeCall(what, callMs, undefined, handle);
  }

  #claimsOf(pod: SimPod, claimUids: readonly string[]) {
    const uids = claimUids.map((uid) => this.uidOf(pod, uid));
    return this.node.claimsOf(pod).filter(({ uid }) => uids.includes(uid));
  }

  /** CDI ids of the pod's claims. */
  #idsOf(pod: SimPod): string[] {
    return this.node.claimsOf(pod).flatMap((claim) => {
      const { ids } = this.infoOf(claim);
      if (ids === undefined) throw new Error(`claim ${claim.name} is not prepared, as it was in the recording`);
      return ids;
    });
  }

  #idOf({ sandboxId }: { sandboxId: string }): string {
    const sandbox = this.sandboxes.get(sandboxId);
    if (sandbox === undefined) throw new Error(`sandbox ${sandboxId} was never made`);
    return sandbox.id;
  }
}

const pollMs = 20;
/** More than the start gate waits. */
const callMs = 240_000;
