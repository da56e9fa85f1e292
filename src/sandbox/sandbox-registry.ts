import type { Logger } from '../logger.ts';
import type { Attachment, StoredClaim } from '../state/index.ts';
import type { SandboxFacts } from './pod.ts';
import { Sandbox, type SandboxDeps, type Wanted } from './sandbox.ts';

interface Entry {
  sandbox: Sandbox;
  /** Whether the runtime has shown it since it connected. */
  isListed: boolean;
  /** Whether the runtime has shown a container in it: what is left of a sandbox that was never made has none. */
  hasContainers: boolean;
  /** Since when the runtime's list lacks it; absent: it does not, or there is no list that is up to date. */
  missingSinceMs: number | undefined;
}

/**
 * How long a sandbox may be missing in the runtime's list before it is taken for gone. Longer than the time between its
 * network being there and its being listed, which is the start of its pause process.
 */
const missingMs = 10_000;
/**
 * How long a pod whose sandbox the runtime has listed without containers may have one all the same. A container that is being
 * created meanwhile can be missing in the list, and its event goes to the plugins that were connected before; if its pod is
 * deleted, the kubelet ends it within this time. Source: containerd/nri issue 63.
 */
const unlistedContainerMs = 10_000;

/**
 * The sandboxes of the node: those that the runtime has shown, and those in which the store still has VFs. The runtime's
 * list is incomplete in both directions: a containerd that was restarted does not report the end of what it had before, and
 * lists what is left of a sandbox that it was making; some runtimes leave sandboxes out that they are just making, such as
 * containerd 1.7 from its plugins' RunPodSandbox until the pause process runs. So what is missing may be alive.
 */
export class SandboxRegistry implements AsyncDisposable {
  readonly #deps: SandboxDeps;
  readonly #logger: Logger;
  /** By sandbox id. */
  readonly #entries = new Map<string, Entry>();
  /** By UID of the pod: id of the sandbox that it lives in, once the runtime has shown that. */
  readonly #current = new Map<string, string>();
  #isFresh = false;
  #synchronizedAtMs = 0;

  constructor(deps: SandboxDeps) {
    this.#deps = deps;
    this.#logger = deps.logger;
  }

  /** Whether the runtime's list of sandboxes is known: a sandbox that is not here does not exist. */
  get isFresh(): boolean {
    return this.#isFresh;
  }

  has(sandboxId: string): boolean {
    return this.#entries.get(sandboxId)?.isListed === true;
  }

  /** Whether the runtime has shown it, and its network namespace is known. */
  isLocated(sandboxId: string): boolean {
    return this.has(sandboxId) && this.find(sandboxId)?.facts.isNetnsUnknown !== true;
  }

  /** Whether the runtime's list is up to date, and says where each sandbox is whose containers may be waiting. */
  get isComplete(): boolean {
    return this.#isFresh && !this.waiting().some(({ facts }) => facts.isNetnsUnknown);
  }

  hasPod(podUid: string): boolean {
    return this.#listed().some(({ sandbox }) => sandbox.facts.podUid === podUid);
  }

  /** Whether the runtime has shown containers of the pod, or may not have shown them yet. */
  mayHaveContainers(podUid: string): boolean {
    const isListNew = this.#deps.clock.nowMs() - this.#synchronizedAtMs < unlistedContainerMs;
    const ofPod = this.#listed().filter(({ sandbox }) => sandbox.facts.podUid === podUid);
    return ofPod.some(({ hasContainers }) => hasContainers || isListNew);
  }

  /** Sandboxes whose containers may be waiting for a claim. */
  waiting(): Sandbox[] {
    return [...this.#entries.values()].flatMap(({ sandbox }) => (sandbox.phase === 'attaching' ? [sandbox] : []));
  }

  find(sandboxId: string): Sandbox | undefined {
    return this.#entries.get(sandboxId)?.sandbox;
  }

  /**
   * The runtime lists the sandboxes that it has.
   * @param current ids of sandboxes with containers: their pods live in them
   */
  synchronize(pods: readonly SandboxFacts[], current: ReadonlySet<string>): void {
    for (const entry of this.#entries.values()) {
      entry.isListed = false;
      entry.hasContainers = false;
    }
    for (const facts of pods) this.#add(facts, current.has(facts.sandboxId));
    for (const { podUid, sandboxId } of pods) if (current.has(sandboxId)) this.#makeCurrent(podUid, sandboxId);
    this.#isFresh = true;
    this.#synchronizedAtMs = this.#deps.clock.nowMs();
    this.requeueAll();
  }

  /** The connection to the runtime is gone: its list is stale until it connects again. */
  expire(): void {
    this.#isFresh = false;
  }

  /**
   * The runtime does something in a sandbox that it does only in the one that the pod lives in.
   * @param hasContainers whether it is about a container
   */
  adopt(facts: SandboxFacts, hasContainers: boolean): Sandbox {
    const sandbox = this.#add(facts, hasContainers);
    this.#makeCurrent(facts.podUid, facts.sandboxId);
    return sandbox;
  }

  /** The runtime stops or removes a sandbox. @throws what keeps its VFs from being detached */
  async end(facts: SandboxFacts): Promise<void> {
    const sandbox = this.#add(facts, false);
    const entry = this.#entries.get(facts.sandboxId);
    if (entry !== undefined) entry.isListed = false;
    await this.#end(sandbox);
  }

  /**
   * Has every sandbox look again whether all is as wanted, and finds those that have ended unseen: their namespace is gone,
   * or the runtime has not listed them for 10 s. A sandbox that does turn out to be alive then is served anew.
   */
  requeueAll(): void {
    for (const attachment of this.#storedAttachments()) this.#addStored(attachment);
    for (const entry of [...this.#entries.values()]) this.#requeue(entry);
  }

  async [Symbol.asyncDispose]() {
    const entries = [...this.#entries.values()];
    this.#entries.clear();
    await Promise.all(entries.map(({ sandbox }) => sandbox[Symbol.asyncDispose]()));
  }

  #requeue(entry: Entry): void {
    const { sandbox, isListed } = entry;
    const { netnsPath, podUid, sandboxId } = sandbox.facts;
    const nowMs = this.#deps.clock.nowMs();
    entry.missingSinceMs = this.#isFresh && !isListed ? (entry.missingSinceMs ?? nowMs) : undefined;
    const isMissing = entry.missingSinceMs !== undefined && nowMs - entry.missingSinceMs >= missingMs;
    const isEmpty = this.#isFresh && !this.mayHaveContainers(podUid);
    const isLeftover = isEmpty && hasVfOfOtherPod(this.#deps.store.claims(), sandbox.facts);
    if (netnsPath !== undefined && this.#deps.networks.isGone(netnsPath))
      this.#inBackground(this.#end(sandbox, 'lost'));
    else if (isMissing || isLeftover) this.#inBackground(this.#end(sandbox, 'away'));
    else if (isListed && this.#livesIn(podUid, sandboxId)) this.#inBackground(sandbox.refresh());
  }

  /**
   * Whether the pod lives in this sandbox. If the runtime has not shown which since we started, it is the one that has its
   * VFs: its containers may be running.
   */
  #livesIn(podUid: string, sandboxId: string): boolean {
    const current = this.#current.get(podUid);
    if (current !== undefined) return current === sandboxId;
    const attached = this.#deps.store
      .claimsOfPod(podUid)
      .flatMap(({ devices }) => devices.flatMap((d) => d.attachment ?? []));
    return !attached.some(
      (other) =>
        other.podUid === podUid &&
        other.sandboxId !== sandboxId &&
        this.has(other.sandboxId) &&
        !this.#deps.networks.isGone(other.netnsPath),
    );
  }

  /** Others of the pod are what is left of earlier attempts. */
  #makeCurrent(podUid: string, sandboxId: string): void {
    if (this.#current.get(podUid) === sandboxId) return;
    this.#current.set(podUid, sandboxId);
    for (const { sandbox } of [...this.#entries.values()]) {
      const { facts } = sandbox;
      if (facts.podUid === podUid && facts.sandboxId !== sandboxId) this.#inBackground(this.#end(sandbox));
    }
  }

  #add(facts: SandboxFacts, hasContainers: boolean): Sandbox {
    const found = this.#entries.get(facts.sandboxId);
    if (found !== undefined && found.sandbox.phase !== 'gone') {
      found.isListed = true;
      found.hasContainers ||= hasContainers;
      found.sandbox.locate(facts);
      return found.sandbox;
    }
    const sandbox = new Sandbox(facts, this.#deps);
    this.#entries.set(facts.sandboxId, { sandbox, isListed: true, hasContainers, missingSinceMs: undefined });
    return sandbox;
  }

  #addStored({ sandboxId, podUid, podNamespace, podName, netnsPath }: Attachment): void {
    const names = {
      ...(podNamespace === undefined ? {} : { podNamespace }),
      ...(podName === undefined ? {} : { podName }),
    };
    const facts = { sandboxId, podUid, ...names, netnsPath };
    const known = this.find(sandboxId);
    if (known !== undefined) {
      known.locate(facts);
      return;
    }
    const sandbox = new Sandbox(facts, this.#deps);
    this.#entries.set(sandboxId, { sandbox, isListed: false, hasContainers: false, missingSinceMs: undefined });
  }

  #listed(): Entry[] {
    return [...this.#entries.values()].filter(({ isListed }) => isListed);
  }

  #storedAttachments(): Attachment[] {
    return this.#deps.store.claims().flatMap(({ devices }) => devices.flatMap(({ attachment }) => attachment ?? []));
  }

  async #end(sandbox: Sandbox, goal: Exclude<Wanted, 'ready'> = 'gone'): Promise<void> {
    const { sandboxId, podUid } = sandbox.facts;
    await sandbox.want(goal);
    if (this.#entries.get(sandboxId)?.sandbox === sandbox) this.#entries.delete(sandboxId);
    if (this.#current.get(podUid) === sandboxId) this.#current.delete(podUid);
  }

  /** Failures are logged and repeated by the sandbox itself. */
  #inBackground(work: Promise<void>): void {
    work.catch((error: unknown) => this.#logger.debug({ err: error }, 'sandbox is requeued'));
  }
}

/** Whether a VF is in the sandbox whose claim has passed to another pod. */
function hasVfOfOtherPod(claims: readonly StoredClaim[], { podUid, sandboxId }: SandboxFacts): boolean {
  return claims.some(({ podUids, devices }) => {
    return !podUids.includes(podUid) && devices.some(({ attachment }) => attachment?.sandboxId === sandboxId);
  });
}
