import { KeyedMutex } from '../../lib/keyed-mutex.ts';
import type { Attachment, SandboxIdentity, StoredClaim } from '../model/index.ts';
import type { End } from './phases.ts';
import type { SandboxFacts } from './pod.ts';
import { Sandbox } from './sandbox.ts';
import type { SandboxDeps } from './sandbox-deps.ts';

interface Entry {
  sandbox: Sandbox;
  /** Whether the runtime has listed it, or sent an event about it, since we connected. */
  isListed: boolean;
  /** Whether the runtime has shown a container in it: remains of a failed creation have none. */
  hasContainers: boolean;
  /** Time since which the up-to-date list of the runtime lacks it; absent if the list has it. */
  missingSinceMs: number | undefined;
}

/**
 * Time after which a sandbox that is missing from the runtime's list counts as gone. Longer than the time between the
 * creation of its network and its appearance in the list, in which its pause process starts.
 */
const missingMs = 10_000;
/**
 * How long a pod whose sandbox the runtime has listed without containers may still have one. A container that is created
 * meanwhile can be missing from the list, and its event goes only to plugins that were connected before; if its pod has
 * been deleted, the kubelet ends it within this time. Source: containerd/nri issue 63.
 */
const unlistedContainerMs = 10_000;

/**
 * The sandboxes of the node: those that the runtime has shown, and those in which the store still has VFs. The runtime's
 * list is unreliable in both directions. After a restart containerd does not report the end of earlier sandboxes, and lists
 * the remains of a sandbox that it was creating. Some runtimes do not list sandboxes while they create them, such as
 * containerd 1.7 between RunPodSandbox and the start of the pause process. So a missing sandbox may be alive.
 */
export class SandboxRegistry implements AsyncDisposable {
  readonly #deps: SandboxDeps;
  /** Sandboxes by id. */
  readonly #entries = new Map<string, Entry>();
  /** ID of each pod's current sandbox, once the runtime has shown it, by pod UID. */
  readonly #current = new Map<string, string>();
  /** Limits concurrent reads of ready sandboxes: with hundreds of them at once, hooks would wait for all. */
  readonly #refreshes = new KeyedMutex(4);
  #isFresh = false;
  #synchronizedAtMs = 0;

  constructor(deps: SandboxDeps) {
    this.#deps = deps;
  }

  /** Whether the runtime's list of sandboxes is up to date. */
  get isFresh(): boolean {
    return this.#isFresh;
  }

  has(sandboxId: string): boolean {
    return this.#entries.get(sandboxId)?.isListed === true;
  }

  /** Returns whether the runtime has shown the sandbox, and its network namespace is known. */
  isLocated(sandboxId: string): boolean {
    return this.has(sandboxId) && this.find(sandboxId)?.facts.isNetnsUnknown !== true;
  }

  /** Whether the list is up to date and has the network namespace of each sandbox whose containers may be waiting. */
  get isComplete(): boolean {
    return this.#isFresh && !this.waiting().some(({ facts }) => facts.isNetnsUnknown);
  }

  hasPod(podUid: string): boolean {
    return this.#listed().some(({ sandbox }) => sandbox.facts.podUid === podUid);
  }

  /** Returns whether the runtime has shown containers of the pod. `maybe`: it has a sandbox, and the list is new. */
  hasContainers(podUid: string): boolean | 'maybe' {
    const ofPod = this.#listed().filter(({ sandbox }) => sandbox.facts.podUid === podUid);
    if (ofPod.some(({ hasContainers }) => hasContainers)) return true;
    const isListNew = this.#deps.clock.nowMs() - this.#synchronizedAtMs < unlistedContainerMs;
    return ofPod.length > 0 && isListNew ? 'maybe' : false;
  }

  /** Returns sandboxes whose containers may be waiting for a claim. */
  waiting(): Sandbox[] {
    return [...this.#entries.values()].flatMap(({ sandbox }) => (sandbox.phase === 'attaching' ? [sandbox] : []));
  }

  /** Returns how long each pod that waits for its VFs has waited, ms. */
  waitsMs(): number[] {
    return [...this.#entries.values()].flatMap(({ sandbox }) => sandbox.waitedMs ?? []);
  }

  /**
   * Returns whether a sandbox that is known only from a waiting container may be the pod's current one. Not while the
   * runtime has shown another one as current, or another one has the pod's VFs.
   */
  mayBeCurrent({ podUid, sandboxId }: SandboxIdentity): boolean {
    const current = this.#current.get(podUid);
    if (current === sandboxId) return true;
    const known = current === undefined ? [] : [this.find(current)?.facts];
    return ![...known, ...this.#attachmentsOf(podUid)].some((other) => {
      if (other?.netnsPath === undefined || other.sandboxId === sandboxId) return false;
      return !this.#deps.networks.isGone(other.netnsPath);
    });
  }

  find(sandboxId: string): Sandbox | undefined {
    return this.#entries.get(sandboxId)?.sandbox;
  }

  /**
   * Takes over the runtime's list of its sandboxes.
   * @param current ids of sandboxes with containers, which are the current ones of their pods
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

  /** Records a lost connection to the runtime, whose list is stale until the next one. */
  expire(): void {
    this.#isFresh = false;
  }

  /**
   * Handles an event that the runtime sends only for the current sandbox of a pod.
   * @param hasContainers whether the event is about a container
   */
  adopt(facts: SandboxFacts, hasContainers: boolean): Sandbox {
    const sandbox = this.#add(facts, hasContainers);
    this.#makeCurrent(facts.podUid, facts.sandboxId);
    return sandbox;
  }

  /** Ends a sandbox that the runtime stops or removes. @throws the reason why its VFs cannot be detached */
  async end(facts: SandboxFacts): Promise<void> {
    const sandbox = this.#add(facts, false);
    const entry = this.#entries.get(facts.sandboxId);
    if (entry !== undefined) entry.isListed = false;
    await this.#end(sandbox);
  }

  /**
   * Reconciles every sandbox, and ends those whose end was not reported: their namespace is gone, or the runtime has not
   * listed them for 10 s. A sandbox that turns out to be alive later is served again.
   */
  requeueAll(): void {
    for (const attachment of this.#storedAttachments()) this.#addStored(attachment);
    for (const entry of [...this.#entries.values()]) this.#requeue(entry);
  }

  /** Reconciles the sandboxes of some pods, whose claims were prepared again. */
  requeuePods(podUids: readonly string[]): void {
    for (const entry of [...this.#entries.values()]) {
      if (podUids.includes(entry.sandbox.facts.podUid)) this.#requeue(entry);
    }
  }

  async [Symbol.asyncDispose]() {
    const entries = [...this.#entries.values()];
    this.#entries.clear();
    await Promise.all(entries.map(({ sandbox }) => sandbox[Symbol.asyncDispose]()));
  }

  #requeue(entry: Entry): void {
    // It was listed while its VFs were being detached.
    if (entry.isListed && entry.sandbox.isAway) entry.sandbox = new Sandbox(entry.sandbox.facts, this.#deps);
    const { sandbox, isListed } = entry;
    const { netnsPath, podUid, sandboxId } = sandbox.facts;
    const nowMs = this.#deps.clock.nowMs();
    entry.missingSinceMs = this.#isFresh && !isListed ? (entry.missingSinceMs ?? nowMs) : undefined;
    const isMissing = entry.missingSinceMs !== undefined && nowMs - entry.missingSinceMs >= missingMs;
    const isEmpty = this.#isFresh && this.hasContainers(podUid) === false;
    const isLeftover = isEmpty && hasVfOfOtherPod(this.#deps.store.claims(), sandbox.facts);
    if (netnsPath !== undefined && this.#deps.networks.isGone(netnsPath)) this.#inBackground(this.#end(sandbox));
    else if (isMissing || isLeftover) this.#inBackground(this.#end(sandbox, 'away'));
    else if (isListed && this.#livesIn(podUid, sandboxId)) this.#inBackground(this.#refresh(sandbox));
  }

  async #refresh(sandbox: Sandbox): Promise<void> {
    // Attaching or detaching VFs may take long, and must not keep the others waiting.
    if (sandbox.phase !== 'ready') return await sandbox.refresh();
    await this.#refreshes.run('', async () => {
      if (this.find(sandbox.facts.sandboxId) === sandbox) await sandbox.refresh();
    });
  }

  /**
   * Returns whether this is the pod's current sandbox. If the runtime has not shown which one it is since the driver's
   * start, the one with the pod's VFs counts as current: its containers may be running.
   */
  #livesIn(podUid: string, sandboxId: string): boolean {
    const current = this.#current.get(podUid);
    if (current !== undefined) return current === sandboxId;
    return !this.#attachmentsOf(podUid).some(
      (other) =>
        other.sandboxId !== sandboxId && this.has(other.sandboxId) && !this.#deps.networks.isGone(other.netnsPath),
    );
  }

  /** Returns the stored attachments of a pod's VFs. */
  #attachmentsOf(podUid: string): Attachment[] {
    return this.#storedAttachments().filter((attachment) => attachment.podUid === podUid);
  }

  /** Makes a sandbox the pod's current one; its others are remains of earlier attempts. */
  #makeCurrent(podUid: string, sandboxId: string): void {
    if (this.#current.get(podUid) === sandboxId) return;
    this.#current.set(podUid, sandboxId);
    for (const { sandbox } of [...this.#entries.values()]) {
      const { facts } = sandbox;
      if (facts.podUid === podUid && facts.sandboxId !== sandboxId) this.#inBackground(this.#end(sandbox));
    }
  }

  #add(listed: SandboxFacts, hasContainers: boolean): Sandbox {
    const facts = this.#located(listed);
    const found = this.#entries.get(facts.sandboxId);
    if (found !== undefined && found.sandbox.phase !== 'gone') {
      found.isListed = true;
      found.hasContainers ||= hasContainers;
      found.sandbox.locate(facts);
      return found.sandbox;
    }
    return this.#create(facts, { isListed: true, hasContainers });
  }

  /**
   * Adds the stored network namespace if the runtime names none: containerd 2.4 leaves it out when its path is gone, for
   * example after a node's death, so that the sandbox looks like one on the host's network.
   */
  #located(facts: SandboxFacts): SandboxFacts {
    if (facts.netnsPath !== undefined) return facts;
    try {
      const stored = this.#storedAttachments().find(({ sandboxId }) => sandboxId === facts.sandboxId);
      if (stored === undefined) return facts;
      const { isNetnsUnknown: _, ...rest } = facts;
      return { ...rest, netnsPath: stored.netnsPath };
    } catch {
      // The work that needs an unreadable store reports it; pods without a claim are unaffected.
      return facts;
    }
  }

  #addStored({ sandboxId, podUid, podNamespace, podName, netnsPath }: Attachment): void {
    const facts = { sandboxId, podUid, podNamespace, podName, netnsPath };
    const known = this.find(sandboxId);
    if (known === undefined) this.#create(facts, { isListed: false, hasContainers: false });
    else known.locate(facts);
  }

  #create(facts: SandboxFacts, seen: { isListed: boolean; hasContainers: boolean }): Sandbox {
    const sandbox = new Sandbox(facts, this.#deps);
    this.#entries.set(facts.sandboxId, { sandbox, ...seen, missingSinceMs: undefined });
    return sandbox;
  }

  #listed(): Entry[] {
    return [...this.#entries.values()].filter(({ isListed }) => isListed);
  }

  #storedAttachments(): Attachment[] {
    return this.#deps.store.claims().flatMap(({ devices }) => devices.flatMap(({ attachment }) => attachment ?? []));
  }

  async #end(sandbox: Sandbox, goal: End = 'gone'): Promise<void> {
    const { sandboxId, podUid } = sandbox.facts;
    await sandbox.want(goal);
    const entry = this.#entries.get(sandboxId);
    if (entry?.sandbox === sandbox) {
      if (entry.isListed && sandbox.isAway) return this.#requeue(entry);
      this.#entries.delete(sandboxId);
    }
    if (this.#current.get(podUid) === sandboxId) this.#current.delete(podUid);
  }

  /** The sandbox itself logs failures and retries. */
  #inBackground(work: Promise<void>): void {
    work.catch((error: unknown) => this.#deps.logger.debug({ err: error }, 'work on a sandbox failed and is repeated'));
  }
}

/** Returns whether a VF is in the sandbox although its claim has passed to another pod. */
function hasVfOfOtherPod(claims: readonly StoredClaim[], { podUid, sandboxId }: SandboxFacts): boolean {
  return claims.some(({ podUids, devices }) => {
    return !podUids.includes(podUid) && devices.some(({ attachment }) => attachment?.sandboxId === sandboxId);
  });
}
