import { KeyedMutex } from '../../lib/keyed-mutex.ts';
import type { Attachment, SandboxIdentity, StoredClaim } from '../model/index.ts';
import type { End } from './phases.ts';
import type { SandboxFacts } from './pod.ts';
import { Sandbox } from './sandbox.ts';
import type { SandboxDeps } from './sandbox-deps.ts';

interface Entry {
  sandbox: Sandbox;
  /** Whether the runtime has listed the sandbox, or sent an event about it, since the driver connected. */
  isListed: boolean;
  /** Whether the runtime has shown a container in the sandbox. The remains of a failed creation have none. */
  hasContainers: boolean;
  /** Time since which the sandbox has been missing from the runtime's up-to-date list, ms; absent if the list has it. */
  missingSinceMs: number | undefined;
}

/**
 * Time after which a sandbox that is missing from the runtime's list counts as gone, ms. Longer than the start of its pause
 * process: until then, a new sandbox has a network but is not in the list.
 */
const missingMs = 10_000;
/**
 * Time after a new list of the runtime, ms, within which a pod without a listed container may still have one. A container
 * that is created during the listing can be missing from the list, and its event goes only to plugins that were already
 * connected. If the pod has been deleted, the kubelet ends the container within this time. Source: containerd/nri issue 63.
 */
const unlistedContainerMs = 10_000;

/**
 * The sandboxes of the node: those that the runtime has shown, and those in which the store still has VFs. The runtime's list
 * can be wrong in both directions. After a restart, containerd does not report the end of earlier sandboxes, and lists the
 * remains of a sandbox that it was creating. Some runtimes do not list sandboxes while they create them, such as containerd
 * 1.7 between RunPodSandbox and the start of the pause process. So a missing sandbox may be alive.
 */
export class SandboxRegistry implements AsyncDisposable {
  readonly #deps: SandboxDeps;
  /** Sandboxes by ID. */
  readonly #entries = new Map<string, Entry>();
  /** ID of each pod's current sandbox, by pod UID; absent until the runtime has shown which one is current. */
  readonly #current = new Map<string, string>();
  /** Limit for concurrent reads of ready sandboxes: hooks would wait for hundreds of reads at once. */
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

  /** Whether the list is up to date, and the network namespace is known of each sandbox whose containers may be waiting. */
  get isComplete(): boolean {
    return this.#isFresh && !this.waiting().some(({ facts }) => facts.isNetnsUnknown);
  }

  hasPod(podUid: string): boolean {
    return this.#listed().some(({ sandbox }) => sandbox.facts.podUid === podUid);
  }

  /**
   * Returns whether the runtime has shown containers of the pod. `maybe`: the pod has a sandbox, and the list is so new that
   * containers may be missing from it.
   */
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
   * Returns whether a sandbox that only a waiting container has announced may be the pod's current one. It is not if the
   * runtime has shown another one as current, or if another one has the pod's VFs.
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
   * Takes over the runtime's list of sandboxes.
   * @param current IDs of sandboxes with containers: each is the current one of its pod
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

  /** Records that the connection to the runtime is lost, so that the list is out of date until the next one. */
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
   * Reconciles every sandbox. Ends sandboxes whose end was not reported: their namespace is gone, or the runtime has not
   * listed them for 10 s. A sandbox that later turns out to be alive is served again.
   */
  requeueAll(): void {
    for (const attachment of this.#storedAttachments()) this.#addStored(attachment);
    for (const entry of [...this.#entries.values()]) this.#requeue(entry);
  }

  /** Reconciles the sandboxes of pods whose claims were prepared again. */
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
    // The runtime has listed the sandbox while its VFs were being detached: a new object serves it.
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
    // Only reads of ready sandboxes are limited: attaching or detaching VFs may take long, and must not delay the other
    // sandboxes.
    if (sandbox.phase !== 'ready') return await sandbox.refresh();
    await this.#refreshes.run('', async () => {
      if (this.find(sandbox.facts.sandboxId) === sandbox) await sandbox.refresh();
    });
  }

  /**
   * Returns whether this is the pod's current sandbox. If the runtime has not shown the current one since the driver's start,
   * the sandbox with the pod's VFs counts as current: its containers may be running.
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

  /** Makes a sandbox the pod's current one. Ends the pod's other sandboxes, which remain from earlier attempts. */
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
   * Returns the facts with the stored network namespace if the runtime reports none. If the path is gone, for example after a
   * crash of the node, containerd 2.4 omits it, so that the sandbox looks as if it used the host's network.
   */
  #located(facts: SandboxFacts): SandboxFacts {
    if (facts.netnsPath !== undefined) return facts;
    try {
      const stored = this.#storedAttachments().find(({ sandboxId }) => sandboxId === facts.sandboxId);
      if (stored === undefined) return facts;
      const { isNetnsUnknown: _, ...rest } = facts;
      return { ...rest, netnsPath: stored.netnsPath };
    } catch {
      // Other work that needs the store reports that it is unreadable; pods without a claim are unaffected.
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

  /** Runs work in the background. The sandbox itself logs failures and retries. */
  #inBackground(work: Promise<void>): void {
    work.catch((error: unknown) => this.#deps.logger.debug({ err: error }, 'work on a sandbox failed and is repeated'));
  }
}

/** Returns whether the sandbox has a VF whose claim has moved to another pod. */
function hasVfOfOtherPod(claims: readonly StoredClaim[], { podUid, sandboxId }: SandboxFacts): boolean {
  return claims.some(({ podUids, devices }) => {
    return !podUids.includes(podUid) && devices.some(({ attachment }) => attachment?.sandboxId === sandboxId);
  });
}
