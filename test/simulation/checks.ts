import { existsSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { type Gate, parseGate } from '../../src/framework/metadata/gate/gate.ts';
import { decodeStream, type MetadataDocument } from '../../src/framework/metadata/index.ts';
import { isFallbackName } from '../../src/node/netlink/free-name.ts';
import { isVfio } from '../../src/node/sriov/index.ts';
import type { SimClaim } from './api-server.ts';
import { vfioNodes } from './card-ports.ts';
import { Guarantees } from './guarantees.ts';
import type { SimVf } from './hardware.ts';
import { directoriesOf, periodicSleepsMs } from './instance.ts';
import { KeptSettings, type PfProperties, settingsUnlike } from './kept-settings.ts';
import type { Namespace, SimLink } from './links.ts';
import { HostModel } from './model.ts';
import { farVfs, isNumaRequired } from './numa.ts';
import { type ClaimPlan, reconcileMsOf } from './plan.ts';
import { Reports } from './reports.ts';
import { Returns } from './returns.ts';
import type { GateWait } from './runtime.ts';
import type { SimContainer, SimSandbox } from './sandboxes.ts';
import type { Process } from './simulator.ts';
import { Waits } from './waits.ts';
import type { Node, SimPod } from './world.ts';

/** A state that must never occur. */
export class Violation extends Error {
  readonly rule: string;

  constructor(rule: string, message: string) {
    super(`${rule}: ${message}`);
    this.rule = rule;
  }
}

/** Before the time in which it gives up to wait for its own work, as the runtime ends a call after 2 s. */
const answerMs = 1_400;
/** Time in which an undisturbed driver ends a container that waits in the start gate, after the deletion of its pod. */
const waitMs = 30_000;
/** Time in which an undisturbed driver serves a pod whose container waits: after failures it tries again every 5 s. */
const startMs = 7_000;
/** A plugin that takes longer is slow: several of a pod keep its containers waiting for as long as they take. */
const slowPluginMs = 1_000;
/** Time in which an undisturbed driver notices that a VF has left its pod, if it follows the pod. */
const followMs = 3_000;
/** Time in which an undisturbed driver has an address in its files whose duplicate address detection has ended. */
const addressMs = 5_000;
/** In calm, also while pods start or end, no second takes the driver more steps than this. */
const stepsPerSecond = 400;

type ClaimSettings =
  | {
      interfaceName?: string;
      macAddress?: string;
      addresses?: string[];
      routes?: { destination: string }[];
      allMulticast?: boolean;
      ethtool?: { rings: { rx: number } };
      vrf?: { name: string; table: number };
      rules?: object[];
      neighbors?: object[];
      slaac?: object;
      ipam?: object;
      mtu?: number;
      bond?: { name: string };
      vf?: PfProperties;
      cni?: object;
    }
  | undefined;

/** Conditions that must hold in every schedule. */
export class Checks {
  readonly #node: Node;
  /** The pod that a VF was last moved to, by PCI address. */
  readonly #lastPods = new Map<string, string>();
  /**
   * PCI addresses of VFs that a failed request named while they were on the host: the driver may have restored them in part, and
   * restores the rest when it detaches them.
   */
  readonly #unrestored = new Set<string>();
  /** Names of the claims that a VF was ever allocated to, by PCI address, with their pods. */
  readonly #pods = new Map<string, Set<string>>();
  /** By their text: a file is read more often than it is written. */
  readonly #documents = new Map<string, MetadataDocument>();
  readonly #generations = new Map<string, { generation: number; text: string }>();
  /** Ids of sandboxes whose pod has changed its own interface. */
  readonly #changed = new Set<string>();
  /** By id: when its pod has last changed it. */
  readonly #changedAtMs = new Map<string, number>();
  /** Time of the driver's first failure in a sandbox that the runtime no longer has. */
  readonly #goneSince = new Map<string, number>();
  /** PCI addresses of VFs that were moved out of the host's namespace for a claim. */
  readonly #away = new Set<string>();
  /** By PCI address: when it left a pod otherwise than by the driver. */
  readonly #leftAtMs = new Map<string, number>();
  /** Pods that have moved a VF away. */
  readonly #movedOut = new Set<SimPod>();
  #damagedAtMs: number | undefined;
  /** Directories of claims whose files something else has damaged; until they are deleted. */
  readonly #damagedDirs = new Set<string>();
  #lastSteps = { atMs: 0, steps: 0 };
  readonly reports: Reports;
  readonly guarantees: Guarantees;
  readonly waits: Waits;
  readonly kept: KeptSettings;
  readonly model: HostModel;
  readonly returns: Returns;
  /** What is to be looked at when the step has ended. */
  readonly #afterStep: (() => void)[] = [];
  #filesChanged = false;
  #isPlaceChanged = false;
  #violation: Violation | undefined;
  #resets = 0;
  /** Time in which an undisturbed driver notices it without: a round of reconciliation, and what it does. */
  readonly #roundMs: number;
  /** Time after the end of a sandbox in which it detaches its VFs and ends its gates, and ceases to work on it. */
  readonly #endMs: number;

  constructor(node: Node) {
    this.#node = node;
    const everyMs = reconcileMsOf(node.plan);
    this.#roundMs = everyMs + 10_000;
    this.#endMs = 2 * everyMs + 20_000;
    const onViolation = (rule: string, message: string) => {
      this.#violation ??= new Violation(rule, message);
    };
    this.reports = new Reports(node, onViolation);
    this.guarantees = new Guarantees(node, onViolation);
    this.waits = new Waits(node, onViolation);
    this.kept = new KeptSettings(node, onViolation);
    this.model = new HostModel(node, onViolation);
    this.returns = new Returns(node, onViolation);
    node.apiServer.pools.onViolation = (message) => onViolation('pool-address', message);
    node.cni.onOther = (message) => onViolation('other-attachment', message);
    node.kernel.observers.push({
      moved: (link, from, to, by) => this.#moved(link, from, to, by),
      removed: (link, by) => this.#leaves(link, by),
      addressReady: (link) => this.#addressReady(link),
    });
  }

  filesChanged(): void {
    this.#filesChanged = true;
  }

  storeChanged(): void {
    this.#isPlaceChanged = true;
  }

  /** The driver works on a sandbox that the runtime no longer has. */
  failedIn(sandboxId: string): void {
    const { nowMs } = this.#node.simulator;
    const sandbox = this.#node.runtime.sandboxes.get(sandboxId);
    if (sandbox !== undefined && (sandbox.state !== 'failed' || sandbox.isListed)) return;
    const since = this.#goneSince.get(sandboxId) ?? nowMs;
    this.#goneSince.set(sandboxId, since);
    if (nowMs - since < this.#endMs) return;
    this.#violation ??= new Violation(
      'endless',
      `the driver still works on ${sandboxId}, which is gone since ${since} ms`,
    );
  }

  podChanges({ id }: Pick<SimSandbox, 'id'>): void {
    this.#changed.add(id);
  }

  /** A pod has changed its own interface: the files of its claims soon show it. */
  podHasChanged(sandbox: SimSandbox): void {
    const { simulator, plan } = this.#node;
    const ms = plan.liveUpdates ? followMs : this.#roundMs;
    const atMs = simulator.nowMs;
    this.#changedAtMs.set(sandbox.id, atMs);
    simulator.schedule(ms, undefined, 'look at files', () => {
      if (this.#changedAtMs.get(sandbox.id) === atMs && this.#node.isUndisturbedFor(ms)) this.#checkFollowed(sandbox);
    });
  }

  /** Files have an address as soon as it is ready. */
  #addressReady({ namespace }: SimLink): void {
    const sandbox = [...this.#node.runtime.sandboxes.values()].find(({ network }) => network === namespace);
    if (sandbox === undefined) return;
    this.#node.simulator.schedule(addressMs + 1, undefined, 'look at files', () => {
      if (this.#node.isUndisturbedFor(addressMs) && !this.#changed.has(sandbox.id)) this.#checkFollowed(sandbox);
    });
  }

  /** Nothing but the devices of its claims keeps a container waiting in the start gate, and those are soon there. */
  waitsAtGate({ id, sandbox }: SimContainer, wait: GateWait): void {
    const { forMs } = wait;
    const isSlow = this.#node.cni.longestMs > slowPluginMs;
    if (forMs < startMs || isSlow || this.#isHindered || !this.#node.isUndisturbedFor(startMs)) return;
    const { pod, isEnding, state } = sandbox;
    if (pod.isDeleted || isEnding || state !== 'ready' || this.#isDamaged() || this.#isOfOthers(pod)) return;
    this.#checkReason(sandbox, wait);
    if (!this.#canRun(pod)) return;
    this.#violation ??= new Violation('late-start', `${id} of ${sandbox.id} still waits after ${forMs / 1_000} s`);
  }

  /** A claim that fails says why in its start gate: its containers fail with that. */
  #checkReason({ id, pod }: SimSandbox, { reason, claimDir }: GateWait): void {
    const failing = this.#existing(pod).find((claim) => claim.plan.isBroken && this.#claimDir(claim) === claimDir);
    if (failing === undefined || reason !== undefined || failing.reservedFor.join() !== pod.uid) return;
    this.#violation ??= new Violation('no-reason', `${failing.name} fails in ${id}, and its gate has not said why`);
  }

  /**
   * Whether a claim of it is prepared for other pods only. From an earlier one a sweep passes it on: the kubelet makes no call
   * then. For a later one its gate is kept, and containers of this pod wait until their time-out at most.
   */
  #isOfOthers({ uid, claims }: SimPod): boolean {
    const stored = this.#node.registered()?.store.claims() ?? [];
    return stored.some(({ identity, podUids }) => claims.includes(identity.name) && !podUids.includes(uid));
  }

  /** Whether what the driver does for a sandbox may take long, or fail. */
  get #isHindered(): boolean {
    const { plan } = this.#node;
    return (
      plan.lostRate + plan.cniHangRate + plan.cniFailureRate + plan.lockedRate > 0 ||
      plan.faults.some(({ kind }) => kind === 'devices slow')
    );
  }

  #checkFollowed(sandbox: SimSandbox): void {
    if (this.#isHindered || this.#isDamaged() || sandbox.isEnding || sandbox.pause === undefined) return;
    for (const claim of this.#existing(sandbox.pod)) this.#checkServed(`${sandbox.id} has changed`, sandbox, claim);
  }

  /** The files of a claim whose gate is open describe its VFs. */
  #checkServed(who: string, sandbox: SimSandbox, claim: SimClaim): void {
    for (const vf of this.#node.hardware.allocatedTo(claim)) {
      const request = claim.devices.find(({ device }) => device === vf.name)?.request ?? '';
      if (vf.link?.namespace !== sandbox.network || this.#gateOf(claim)?.state !== 'served') continue;
      const document = this.#readDocument(claim, request);
      if (document !== undefined) this.#checkDocument(who, sandbox, vf, document, claim);
    }
  }

  cardReset(): void {
    this.#resets += 1;
    const { nowMs } = this.#node.simulator;
    for (const { pciAddress } of this.#node.hardware.vfs) this.#leftAtMs.set(pciAddress, nowMs);
    for (const sandbox of this.#node.runtime.sandboxes.values()) {
      this.#changed.add(sandbox.id);
      this.#lookForLeft(sandbox);
    }
  }

  /** Soon no file describes a VF that has left its pod, whatever has become of the others of its claim. */
  #lookForLeft(sandbox: SimSandbox): void {
    const ms = this.#roundMs;
    this.#node.simulator.schedule(ms + 1, undefined, 'look at files', () => {
      const isOver = sandbox.isEnding || sandbox.pause === undefined || sandbox.network.isHost;
      if (isOver || this.#isHindered || this.#isDamaged() || !this.#node.isUndisturbedFor(ms)) return;
      for (const claim of this.#existing(sandbox.pod)) this.#checkLeftOf(claim, sandbox);
    });
  }

  #checkLeftOf(claim: SimClaim, { pod, id, network }: SimSandbox): void {
    if (!claim.reservedFor.includes(pod.uid)) return;
    for (const vf of this.#node.hardware.allocatedTo(claim)) {
      if (vf.link === undefined || vf.link.namespace === network || !this.#isSettled(vf)) continue;
      const request = claim.devices.find(({ device }) => device === vf.name)?.request ?? '';
      if (this.#readDocument(claim, request)?.devices.some(({ name }) => name === vf.name))
        this.#violation ??= new Violation(
          'left-described',
          `${vf.name} has left ${id}, and its file still describes it`,
        );
    }
  }

  booted(): void {
    for (const vf of this.#node.hardware.vfs) vf.wasBooted = true;
  }

  bound(pod: SimPod): void {
    for (const { devices } of this.#node.claimsOf(pod)) {
      for (const { device, adminAccess } of devices) {
        if (adminAccess) continue;
        const known = this.#pods.get(device) ?? new Set();
        this.#pods.set(device, known.add(pod.uid));
      }
    }
  }

  /** Whether a VF was ever allocated to a pod. */
  wasAllocated(device: string, podUid: string): boolean {
    return this.#pods.get(device)?.has(podUid) === true;
  }

  /** @throws Violation */
  afterStep(): void {
    for (const check of this.#afterStep.splice(0)) check();
    const [filesChanged, isPlaceChanged] = [this.#filesChanged, this.#isPlaceChanged];
    this.#filesChanged = false;
    this.#isPlaceChanged = false;
    if (filesChanged) for (const claim of this.#node.apiServer.claims.values()) this.#checkGenerations(claim);
    if (filesChanged) this.#checkMounts();
    if (isPlaceChanged) this.#checkPlaces();
    if (filesChanged || isPlaceChanged) this.#checkGates();
    if (this.#violation !== undefined) throw this.#violation;
  }

  containerRuns(container: SimContainer): void {
    try {
      this.#checkContainer(container);
    } catch (error) {
      this.#violation ??= error as Violation;
    }
  }

  /** A pod with restartPolicy Never has ended: the reason must not be a missing VF or a timeout. */
  podFailed(pod: SimPod, { startError }: SimContainer): void {
    if (
      startError === undefined ||
      pod.isDeleted ||
      !/in time|mount source|not prepared|does not stop/.test(startError) ||
      // Without a start gate they fail like this, and are started again unless they have restartPolicy Never.
      this.#node.plan.settings.some(({ gate }) => gate === 'file') ||
      !this.#canRun(pod) ||
      pod.claims.some((name) => this.wasDamaged(name))
    )
      return;
    this.#violation ??= new Violation('pod-failed', `${pod.uid} has failed for good: ${startError}`);
  }

  runs(pod: SimPod): boolean {
    const containers = [...this.#node.runtime.containers.values()];
    return containers.some(({ state, sandbox }) => state === 'running' && sandbox.pod === pod);
  }

  /** Pods that should run but do not. */
  waiting(): string[] {
    const { pods } = this.#node;
    // A pod without a free VF waits for another to end.
    const due = pods.filter((pod) => pod.isBound && !pod.isDeleted && !pod.isFailed);
    const waiting = due.filter((pod) => !this.runs(pod) && this.#canRun(pod));
    return [
      ...waiting.map(({ uid }) => `${uid} does not run`),
      ...due.flatMap((pod) => this.#unserved(pod)),
      ...this.#closed(),
    ];
  }

  /** Claims of pods that run and have their VFs, and whose start gate is closed nevertheless: a container that ends is started again. */
  *#closed(): Generator<string> {
    const { hardware, plan, runtime } = this.#node;
    if (plan.settings.some(({ gate }) => gate === 'file')) return;
    for (const { state, sandbox } of runtime.containers.values()) {
      if (state !== 'running' || sandbox.isEnding || sandbox.pod.isDeleted) continue;
      for (const claim of this.#existing(sandbox.pod)) {
        const vfs = hardware.allocatedTo(claim);
        const isWhole = vfs.length > 0 && vfs.every(({ link }) => link?.namespace === sandbox.network);
        if (!isWhole || this.#node.registered()?.store.claim(claim.uid)?.state !== 'prepared') continue;
        const gate = this.#gateOf(claim);
        if (gate?.state !== 'served' || gate.sandboxId !== sandbox.id)
          yield `the gate of ${claim.name} is ${gate?.state ?? 'closed'}, and ${sandbox.id} runs and has its VFs`;
      }
    }
  }

  /** Whether its claims can be served at all. */
  #canRun(pod: SimPod): boolean {
    const claims = this.#node.claimsOf(pod);
    const withVfs = claims.filter(({ devices }) => devices.some(({ adminAccess }) => !adminAccess));
    if (withVfs.some(({ plan, reservedFor }) => plan.isBroken || reservedFor.length > 1)) return false;
    if (withVfs.length > 0 && pod.plan.isOnHost) return false;
    if (this.#isRefused(pod) || this.guarantees.isWaiting(pod)) return false;
    // With such settings nothing shows which containers use a claim, so those with `numa: require` are not prepared.
    const isBlind = this.#node.plan.settings.some(({ metadata, gate }) => !metadata && gate === 'file');
    if (isBlind && withVfs.some(({ plan }) => isNumaRequired(plan))) return false;
    // Only containers that wait in the start gate can tell a namespace that the runtime has lost.
    const sandbox = this.#node.runtime.list().findLast((each) => each.pod === pod);
    if (sandbox?.isNetnsLost === true && this.#node.plan.settings.some(({ gate }) => gate === 'file')) return false;
    if (this.#mayLackSpec(pod)) return false;
    // A VF that a process has moved to a namespace of its own stays there until the pod ends.
    if ([...this.#node.runtime.sandboxes.values()].some((each) => each.pod === pod && each.ownNamespace !== undefined))
      return false;
    // A pod whose VF was reset in user space has to be deleted; one that Multus has moved into the pod comes back with the next.
    const isWhole = this.#resets === 0 && !this.#movedOut.has(pod);
    return isWhole || claims.every(({ plan: { attach } }) => attach === 'netlink' || attach === 'cni');
  }

  /** A spec with nothing but a hook, as without metadata, is not written again by a driver without the gate. */
  #mayLackSpec(pod: SimPod): boolean {
    const { settings, faults } = this.#node.plan;
    const losesSpec = faults.some((fault) => fault.kind === 'damage file' && fault.of === 'CDI spec');
    if (!losesSpec || settings.every(({ gate }) => gate === 'hook')) return false;
    const records = this.#node.registered()?.store.records;
    return this.#existing(pod).some(({ name }) => {
      const record = records?.read(`default_${name}`);
      return record !== undefined && JSON.parse(record).layouts.length === 0;
    });
  }

  /** The claims of a pod, as far as they were not deleted. */
  #existing(pod: SimPod): SimClaim[] {
    return pod.claims.flatMap((name) => this.#node.apiServer.claims.get(name) ?? []);
  }

  /** Whether a claim that requires to be near the pod's CPUs is not. */
  #isRefused(pod: SimPod): boolean {
    const claims = this.#existing(pod);
    const vfs = claims.flatMap((claim) => this.#node.hardware.allocatedTo(claim));
    const far = farVfs(pod.plan.cpus, vfs);
    return claims.some((claim) => {
      return isNumaRequired(claim.plan) && this.#node.hardware.allocatedTo(claim).some((vf) => far.includes(vf));
    });
  }

  /** Claims of a pod whose other claim fails for good, and that are not in its sandbox nevertheless. */
  #unserved(pod: SimPod): string[] {
    const claims = this.#node.claimsOf(pod);
    if (pod.plan.isOnHost || this.#resets > 0 || !claims.some(({ plan }) => plan.isBroken)) return [];
    if (claims.some(({ reservedFor }) => reservedFor.length > 1)) return [];
    const sandbox = this.#node.runtime.list().findLast((each) => each.pod === pod && each.state === 'ready');
    if (sandbox === undefined || this.#changed.has(sandbox.id)) return [];
    const served = claims.filter(({ plan }) => plan.attach === 'netlink' && plan.isBroken !== true);
    const devices = served.flatMap((claim) => claim.devices.filter(({ adminAccess }) => !adminAccess));
    const missing = devices.filter(({ device }) => {
      return this.#node.hardware.vfs.find(({ name }) => name === device)?.link?.namespace !== sandbox.network;
    });
    return missing.map(({ device }) => `${device} is not in ${sandbox.id}, of which another claim fails`);
  }

  /** What slices, status, health and readiness say, and the node does not. */
  *disagreements(): Generator<string> {
    yield* this.guarantees.misreported();
    const instance = this.#node.registered();
    if (instance !== undefined) yield* this.model.differences(instance);
    yield* this.#misdescribed();
    // A pod whose VF was reset with the card has to be deleted.
    yield* this.reports.disagreements(this.#resets === 0 ? ({ id }) => !this.#changed.has(id) : undefined);
  }

  /** What files say of the VFs of pods that run, and the kernel does not. */
  *#misdescribed(): Generator<string> {
    for (const { state, sandbox } of this.#node.runtime.containers.values()) {
      if (state !== 'running' || sandbox.isEnding || sandbox.pod.isDeleted) continue;
      for (const claim of this.#existing(sandbox.pod)) {
        try {
          this.#checkServed(`${sandbox.id} runs`, sandbox, claim);
        } catch (error) {
          yield (error as Violation).message;
        }
      }
    }
  }

  /** Whether something else has damaged a file of the claim since it was prepared. */
  wasDamaged(claimName: string): boolean {
    return this.#damagedDirs.has(dirNameOf(claimName));
  }

  /** Something else has damaged a file. @param dirName that of its claim's directory */
  damaged(dirName: string): void {
    this.#damagedAtMs = this.#node.simulator.nowMs;
    this.#damagedDirs.add(dirName);
  }

  /** In calm: what must have an end. @throws Violation */
  bounds(): void {
    const { simulator, runtime } = this.#node;
    const { nowMs, steps } = simulator;
    const seconds = (nowMs - this.#lastSteps.atMs) / 1_000;
    const count = steps - this.#lastSteps.steps;
    if (this.#lastSteps.atMs > 0 && seconds > 0 && count > stepsPerSecond * Math.max(1, seconds)) {
      throw new Violation('endless', `${count} steps in ${seconds} s without faults`);
    }
    this.#lastSteps = { atMs: nowMs, steps };
    // A damaged gate holds containers of a ready sandbox, which is not looked at again before the next round.
    if (this.#node.isUndisturbedFor(waitMs) && !this.#isDamaged()) this.#checkDeleted();
    if (!this.#node.isUndisturbedFor(this.#endMs)) return;
    for (const sandbox of runtime.sandboxes.values()) {
      if (nowMs - (sandbox.endedAtMs ?? nowMs) >= this.#endMs) this.#checkEnd(sandbox);
    }
  }

  #checkDeleted(): void {
    const { pods, simulator } = this.#node;
    for (const pod of pods) {
      const { uid, deletedAtMs = simulator.nowMs, plan } = pod;
      if (simulator.nowMs - deletedAtMs < waitMs || plan.shares || !this.#isAtGate(pod) || this.#isOfOthers(pod))
        continue;
      throw new Violation('late-end', `${uid} was deleted, and its container still waits in the start gate`);
    }
  }

  /** Wherever work for a sandbox hangs: its VFs leave when it ends. */
  sandboxEnds(sandbox: SimSandbox): void {
    const { plan, simulator } = this.#node;
    if (plan.lostRate + plan.lockedRate > 0) return;
    simulator.schedule(this.#endMs, undefined, 'look at the end of a sandbox', () => {
      if (this.#node.isUndisturbedFor(this.#endMs)) this.#checkEnd(sandbox);
    });
  }

  /** A driver that has all the time it needs answers when the VFs that it has moved are out of the sandbox. */
  stopAnswered({ id, network, pod }: SimSandbox, afterMs: number): void {
    const isHurried = afterMs >= answerMs || this.#isHindered || !this.#node.isUndisturbedFor(2 * answerMs);
    if (isHurried || network.isHost || this.#changed.has(id)) return;
    for (const claim of this.#existing(pod)) {
      if (claim.plan.attach !== 'netlink' || !claim.reservedFor.includes(pod.uid)) continue;
      const left = this.#node.hardware.allocatedTo(claim).find(({ link }) => link?.namespace === network);
      if (left !== undefined)
        this.#violation ??= new Violation('late-end', `StopPodSandbox of ${id} is answered, and ${left.name} is in it`);
    }
  }

  #isAtGate(pod: SimPod): boolean {
    return [...this.#node.runtime.containers.values()].some(({ isAtGate, sandbox }) => isAtGate && sandbox.pod === pod);
  }

  #checkEnd({ id, network, pod }: SimSandbox): void {
    const vf = network.isHost ? undefined : network.links.find(({ parentDevice }) => parentDevice !== undefined);
    if (vf !== undefined) throw new Violation('late-end', `${vf.parentDevice} is still in ${id}, which has ended`);
    for (const name of pod.claims) {
      const claim = this.#node.apiServer.claims.get(name);
      const gate = claim && this.#gateOf(claim);
      if (gate?.sandboxId === id && gate.state !== 'ended') {
        throw new Violation('late-end', `the gate of ${name} says ${gate.state} for ${id}, which has ended`);
      }
    }
  }

  /** All differences of the node from its state before the first pod; those that last longest, and are cheap to find, first. */
  *remaining(): Generator<string> {
    const { pods, hardware, cni, kernel, runtime, kubelet } = this.#node;
    const { dataDir, cdiDir } = directoriesOf(this.#node.directories);
    const instance = this.#node.registered();
    for (const pod of pods) if (!pod.isDone) yield `${pod.uid} has not ended`;
    if (!kubelet.isIdle) yield 'the kubelet is not done';
    for (const sandbox of runtime.list()) yield `sandbox ${sandbox.id}`;
    if (instance === undefined) yield 'the driver does not run';
    else {
      yield* this.#unexpectedWork(instance.process);
      for (const { identity, state } of instance.store.claims()) yield `${identity.name} is stored as ${state}`;
      for (const name of instance.store.records.names()) yield `record ${name}`;
      for (const { device, reason } of instance.store.unrestored()) {
        yield `${device.name} is stored as not restored: ${reason}`;
      }
    }
    for (const vf of hardware.vfs) for (const change of hardware.changesOf(vf)) yield `${vf.name}: ${change}`;
    for (const file of this.model.files()) yield `file ${file}`;
    for (const dir of [join(dataDir, 'dra-device-metadata'), cdiDir]) {
      if (existsSync(dir)) for (const file of readdirSync(dir)) yield `file ${file}`;
    }
    for (const address of cni.addresses) yield `address ${address} was not released`;
    if (cni.entries.size > 0) yield `${cni.entries.size} CNI attachments`;
    for (const { name, parentDevice } of kernel.host.links) {
      if (name !== 'lo' && parentDevice === undefined) yield `link ${name}`;
    }
    yield* this.disagreements();
  }

  /** The location of a VF is stored before it leaves the host, and until it is back. */
  #checkPlaces(): void {
    const { hardware, instances } = this.#node;
    const store = instances.find(({ process }) => process.isAlive)?.store;
    if (store === undefined) {
      this.#isPlaceChanged = this.#away.size > 0;
      return;
    }
    for (const pciAddress of this.#away) {
      const { namespace } = hardware.find(pciAddress)?.link ?? {};
      if (namespace === undefined || namespace.isHost) continue;
      const held = store.holderOf(pciAddress)?.devices.find((device) => device.pciAddress === pciAddress);
      const device = held ?? store.unrestored().find((each) => each.device.pciAddress === pciAddress)?.device;
      if (device?.attachment !== undefined) continue;
      this.#violation ??= new Violation('not-stored', `${pciAddress} is in ${namespace.owner}, and that is not stored`);
    }
  }

  /** Pending work that is not periodic. */
  #unexpectedWork(process: Process): string[] {
    const work = this.#node.simulator.pending(process);
    // Each of them once: other work may sleep for the same time.
    for (const ms of [reconcileMsOf(this.#node.plan), ...periodicSleepsMs]) {
      const at = work.indexOf(`sleep ${ms}`);
      if (at !== -1) work.splice(at, 1);
    }
    return work.map((name) => `the driver still waits for: ${name}`);
  }

  #checkContainer(container: SimContainer): void {
    const { sandbox } = container;
    const { pod } = sandbox;
    const isItsOwn = this.#existing(pod).every(({ reservedFor }) => reservedFor.includes(pod.uid));
    if (container.isApproved && isItsOwn && this.#isRefused(pod)) {
      throw new Violation('wrong-node', `${container.id} runs on CPUs ${pod.plan.cpus}, which its claim refuses`);
    }
    for (const claim of this.#existing(pod)) {
      this.#checkClaim(`${container.id} of ${sandbox.id} runs`, sandbox, claim, container.edits);
    }
    this.#checkModes(container);
    if (isItsOwn && this.#existing(pod).length === pod.claims.length) this.#checkNodes(container);
  }

  /** Whoever a container runs as may read its files. */
  #checkModes({ id, edits }: SimContainer): void {
    const { files } = this.#node.disk;
    for (const { hostPath } of edits.mounts) {
      const [file, directory] = [files.modeOf(hostPath) ?? 0o444, files.modeOf(dirname(hostPath)) ?? 0o555];
      if ((file & 0o444) === 0o444 && (directory & 0o555) === 0o555) continue;
      const modes = `${file.toString(8)} in ${directory.toString(8)}`;
      throw new Violation('not-readable', `${id} has ${hostPath} with mode ${modes}`);
    }
  }

  /** A container has the device files of its own VFs in user space, and no others. */
  #checkNodes({ id, edits, sandbox: { pod } }: SimContainer): void {
    const own = this.#existing(pod).filter(({ plan: { attach } }) => attach === 'user-space');
    const vfs = own.flatMap((claim) => this.#node.hardware.allocatedTo(claim));
    const expected = [...new Set(vfs.flatMap(({ vfIndex }) => vfioNodes(vfIndex)))].sort().join();
    const found = [...new Set(edits.deviceNodes.map(({ path }) => path))].sort().join();
    if (found !== expected) throw new Violation('wrong-nodes', `${id} of ${pod.uid} has ${found}, not ${expected}`);
  }

  /** While the start gate of a claim is open for a sandbox, containers can start there, also without the driver. */
  #checkGates(): void {
    for (const claim of this.#node.apiServer.claims.values()) {
      const gate = this.#gateOf(claim);
      if (gate?.state !== 'served') continue;
      const store = this.#node.registered()?.store;
      const record = store?.records.read(`default_${claim.name}`);
      if (record !== undefined && JSON.parse(record).servedBy !== gate.sandboxId)
        throw new Violation('gate-not-recorded', `the gate of ${claim.name} is open for ${gate.sandboxId}: ${record}`);
      const sandbox = this.#node.runtime.sandboxes.get(gate.sandboxId);
      // The kubelet starts no container of a claim that it has unprepared.
      if (sandbox?.pause === undefined || store?.claim(claim.uid)?.state !== 'prepared') continue;
      this.#checkClaim(`a container of ${sandbox.id} can start`, sandbox, claim);
    }
  }

  /** @param edits of a container that has the claim; absent: it waits at the gate */
  #checkClaim(who: string, sandbox: SimSandbox, claim: SimClaim, edits?: SimContainer['edits']): void {
    // After a pod was force-deleted, its claim may have other devices, for the next pod.
    if (!claim.reservedFor.includes(sandbox.pod.uid)) return;
    const { settings } = this.#node.plan;
    const isGated =
      edits === undefined ||
      settings.every(({ gate }) => gate === 'hook') ||
      edits.hooks.some(({ args }) => args.includes(this.#claimDir(claim)));
    for (const { device, request, adminAccess } of claim.devices) {
      const where = `${who} with ${device} of ${claim.name}`;
      const isMounted =
        settings.every(({ metadata }) => metadata) ||
        edits?.mounts.some(({ hostPath }) => hostPath.includes(`/default_${claim.name}/${request}/`)) === true;
      const vf = this.#node.hardware.vfs.find((each) => each.name === device);
      const hasVf = !adminAccess && vf !== undefined;
      // Without a gate, a file of the earlier sandbox lets containers start while no instance runs.
      const isGuarded = isGated || (isMounted && this.#node.isUndisturbedFor(followMs));
      // No interface shows that a VF in user space was reset: its pod has to be deleted.
      const isUnseen = this.#resets > 0 && claim.plan.attach === 'user-space';
      if (hasVf && isGuarded && !isUnseen) this.#checkPlace(where, sandbox, vf);
      if (!isMounted || !isGuarded || this.#isDamaged() || (hasVf && !this.#isSettled(vf))) continue;
      const document = this.#readDocument(claim, request);
      if (document === undefined) throw new Violation('no-metadata', `${where} and no metadata`);
      this.#checkSubject(where, document, claim, request);
      if (document.generation < 1) throw new Violation('no-metadata', `${where}, generation ${document.generation}`);
      const isFollowed = vf?.link === undefined || !this.#changed.has(sandbox.id);
      if (hasVf && isFollowed && !isUnseen) this.#checkDocument(where, sandbox, vf, document, claim);
    }
  }

  /** Whether a file may be damaged that no round of reconciliation has seen yet. */
  #isDamaged(): boolean {
    const nowMs = this.#node.simulator.nowMs;
    if (this.#damagedAtMs === undefined) return false;
    // A plugin that hangs holds the repair of its sandbox's files up for a minute.
    if (this.#node.plan.cniHangRate > 0) return true;
    return nowMs - this.#damagedAtMs < this.#roundMs || !this.#node.isUndisturbedFor(this.#roundMs);
  }

  /** Whether it never left its pod by itself, or the driver had the time to notice that it did. */
  #isSettled({ pciAddress }: SimVf): boolean {
    return this.#isNoticed(this.#leftAtMs.get(pciAddress));
  }

  #isNoticed(sinceMs: number | undefined): boolean {
    if (sinceMs === undefined) return true;
    const ms = this.#node.plan.liveUpdates ? followMs : this.#roundMs;
    return this.#node.simulator.nowMs - sinceMs > ms && this.#node.isUndisturbedFor(ms);
  }

  #checkPlace(where: string, { id, network }: SimSandbox, vf: SimVf): void {
    if (!this.#isSettled(vf)) return;
    if (network.isHost) throw new Violation('not-attached', `${where}, on the host's network`);
    const stored = this.#node.registered()?.store.holderOf(vf.pciAddress);
    const attachment = stored?.devices.find(({ pciAddress }) => pciAddress === vf.pciAddress)?.attachment;
    if (stored !== undefined && attachment?.sandboxId !== id) {
      throw new Violation('not-attached', `${where}, which is stored in ${attachment?.sandboxId ?? 'no sandbox'}`);
    }
    const wrongRates = this.guarantees.problemOf(vf);
    if (wrongRates !== undefined && !this.kept.isExcused(vf))
      throw new Violation('not-configured', `${where}, which has ${wrongRates}`);
    if (vf.link?.namespace === network || isVfio(vf.driver ?? '')) return;
    if (vf.link === undefined) throw new Violation('not-attached', `${where}, which has no interface`);
    const place = vf.link.namespace.isHost ? 'on the host' : `in ${vf.link.namespace.owner}`;
    throw new Violation('not-attached', `${where}, which is ${place}`);
  }

  /** The VF is what the claim asks for. */
  #checkSettings(where: string, vf: SimVf, link: SimLink, sandbox: SimSandbox, { attach, config }: ClaimPlan): void {
    if (attach !== 'netlink') return;
    const { id } = sandbox;
    const { mtu, bond, ipam, vf: ofPf = {}, ...wanted } = config as NonNullable<ClaimSettings>;
    const { interfaceName: pattern = '', macAddress: mac, addresses = [], routes = [], allMulticast } = wanted;
    const { rules = [], neighbors = [], slaac, ethtool, vrf } = wanted;
    const isNamed = pattern === '' || link.name === pattern || link.name.replace(/\d+$/, '%d') === pattern;
    const has = [...link.used.addresses.keys()];
    const asked = [...routes.map(({ destination }) => destination), ...this.#leasedRoutesOf(id, has)];
    const isChanged = this.kept.isChangedByPod(link);
    const destinations = isChanged ? [] : asked;
    const wrong = [
      ...(isNamed ? [] : [`name ${link.name}`]),
      ...(mac === undefined || link.hardwareAddress === mac ? [] : [`MAC ${link.hardwareAddress}`]),
      ...(addresses.every((cidr) => has.includes(cidr)) ? [] : [`addresses ${has}`]),
      ...destinations.flatMap((destination) =>
        link.used.routes.some((each) => each.destination === destination) ? [] : [`no route to ${destination}`],
      ),
      ...(isChanged || link.used.neighbors.size === neighbors.length ? [] : ['other neighbors']),
      ...(rules.length === 0 || link.used.namespace.rules.size > 0 ? [] : ['no rule']),
      ...(ethtool === undefined || isChanged || link.rings.rx === ethtool.rings.rx ? [] : ['other rings']),
      ...(!allMulticast || isChanged || link.used.flags.includes('allMulticast') ? [] : ['no multicast']),
      ...(ipam === undefined || this.#leasesOf(id).some((cidr) => has.includes(cidr)) ? [] : ['no leased address']),
      ...(slaac === undefined || isChanged || hasRouterAddress(link.used) ? [] : ['no address from a router']),
      ...this.#excessOf(sandbox, link),
      ...(link.up && link.used.up ? [] : ['down']),
      ...(bond === undefined || link.used.name === bond.name ? [] : ['in no bond']),
      ...(vrf === undefined || isChanged || isIn(vrf, link) ? [] : ['in no VRF']),
      ...(mtu === undefined || link.mtuBytes === mtu ? [] : [`MTU ${link.mtuBytes}`]),
      ...(this.kept.isExcused(vf) ? [] : settingsUnlike(vf, ofPf)),
    ];
    if (wrong.length > 0)
      throw new Violation('not-configured', `${where}, which has not what it asks for: ${wrong.join(', ')}`);
  }

  /** What a pod has more of than its claims ask for: the members of a bond share its addresses, and it is made once. */
  #excessOf({ id, pod }: SimSandbox, { namespace }: SimLink): string[] {
    const plans = pod.claims.flatMap((name) => this.#node.apiServer.claims.get(name)?.plan ?? []);
    if (plans.length < pod.claims.length) return [];
    const sum = (list: readonly ClaimPlan[]) => list.reduce((all, { vfs, isBond }) => all + (isBond ? 1 : vfs), 0);
    const [leases, bonds] = [this.#leasesOf(id).length, ownBondsIn(namespace).length];
    const vrfs = namespace.links.filter(({ kind }) => kind === 'vrf').length;
    const [mostLeases, mostBonds] = [sum(plans.filter(({ ipam }) => ipam)), sum(plans.filter(({ isBond }) => isBond))];
    return [
      ...(leases > mostLeases ? [`${leases} leases instead of ${mostLeases}`] : []),
      ...(bonds > mostBonds ? [`${bonds} bonds instead of ${mostBonds}`] : []),
      ...(vrfs > 1 ? [`${vrfs} VRFs`] : []),
    ];
  }

  /** The file's content matches the kernel's state. */
  #checkDocument(where: string, sandbox: SimSandbox, vf: SimVf, document: MetadataDocument, claim: SimClaim): void {
    const data = document.devices.find(({ name }) => name === vf.name)?.networkData;
    const { link } = vf;
    if (link === undefined) {
      const known = this.#leasesOf(sandbox.id);
      const unknown = (data?.ips ?? []).filter((address) => address.startsWith('10.9.') && !known.includes(address));
      if (unknown.length > 0)
        throw new Violation('wrong-metadata', `${where}, which names ${unknown}, assigned to no sandbox`);
      return;
    }
    if (!this.#changed.has(sandbox.id)) {
      this.#checkSettings(where, vf, link, sandbox, this.#node.apiServer.pools.planOf(claim));
      this.#checkAttributes(where, vf, link, document);
    }
    const ready = [...link.used.addresses.values()].filter(({ tentative }) => !tentative).map(({ cidr }) => cidr);
    const actual = {
      interfaceName: link.used.name,
      hardwareAddress: link.used.hardwareAddress,
      ips: ready.sort().join(),
    };
    const written = {
      interfaceName: data?.interfaceName,
      hardwareAddress: data?.hardwareAddress,
      ips: (data?.ips ?? []).join(),
    };
    if (JSON.stringify(actual) === JSON.stringify(written)) return;
    const earlier = { ...actual, ips: ready.filter((cidr) => !cidr.includes(':')).join() };
    if (
      (this.#isJustReady(link.used) || this.#isUnknown(sandbox)) &&
      JSON.stringify(earlier) === JSON.stringify(written)
    )
      return;
    throw new Violation(
      'wrong-metadata',
      `${where}: ${JSON.stringify(written)} in the file, ${JSON.stringify(actual)} in the kernel`,
    );
  }

  /** Addresses that IPAM plugins have assigned to a sandbox. */
  #leasesOf(sandboxId: string): string[] {
    return this.#cniEntriesOf(sandboxId).flatMap(({ address }) => address ?? []);
  }

  /** Destinations that IPAM plugins want to be reached through these addresses. */
  #leasedRoutesOf(sandboxId: string, addresses: readonly string[]): string[] {
    return this.#cniEntriesOf(sandboxId).flatMap(({ address = '', routes }) =>
      addresses.includes(address) ? routes.map(({ dst }) => dst) : [],
    );
  }

  #cniEntriesOf(sandboxId: string) {
    const entries = [...this.#node.cni.entries.values()];
    return entries.filter(({ cached }) => cached.attachment.containerId === sandboxId);
  }

  /** Whether one of its addresses became ready so lately that the file need not have it. */
  #isJustReady({ readyAtMs }: SimLink): boolean {
    const { simulator } = this.#node;
    const ms = this.#isHindered ? 2 * this.#roundMs : addressMs;
    return simulator.nowMs - readyAtMs <= ms || !this.#node.isUndisturbedFor(ms);
  }

  /** A driver that was started while a runtime creates a sandbox may see it only with its first container, before that starts. */
  #isUnknown({ state, isListed, toldTo }: SimSandbox): boolean {
    const instance = this.#node.registered();
    return state === 'making' && !isListed && instance !== undefined && !toldTo.has(instance);
  }

  /** The file is about this claim, and all devices of the request. */
  #checkSubject(where: string, document: MetadataDocument, claim: SimClaim, request: string): void {
    const { uid, name, isTemplate, plan } = claim;
    const { claim: subject, podClaimName } = document;
    // The kubelet keeps a claim prepared that passes from a pod that was deleted by force to the next one, with the devices of before,
    // though it is allocated anew. VFs are checked elsewhere.
    const isKept = plan.adminAccess && !isTemplate;
    const devices = isKept
      ? document.devices.map((each) => each.name)
      : claim.devices.filter((each) => each.request === request).map(({ device }) => device);
    const expected = [uid, name, isTemplate ? 'net' : undefined, request, ...devices.sort()].join();
    const found = [
      subject.uid,
      subject.name,
      podClaimName,
      document.request,
      ...document.devices.map((each) => each.name).sort(),
    ].join();
    if (found !== expected)
      throw new Violation('wrong-metadata', `${where}: the file is about ${found}, not ${expected}`);
  }

  /** What the file says of the VF itself, beside its network data. */
  #checkAttributes(where: string, vf: SimVf, link: SimLink, document: MetadataDocument): void {
    const { attributes = {} } = document.devices.find(({ name }) => name === vf.name) ?? {};
    const { master } = link;
    const isMember = master?.kind === 'bond';
    const actual = [link.hardwareAddress, `${link.mtuBytes}`];
    if (isMember) actual.push(master.name, `${master.active === link && link.hasCable}`);
    const keys = isMember ? ['mac', 'mtu', 'bond', 'bondActive'] : ['mac', 'mtu'];
    const written = keys.map((key) => String(Object.values(attributes[key] ?? {})[0]));
    if (written.join() === actual.join()) return;
    throw new Violation('wrong-metadata', `${where}: ${keys} ${written} in the file, ${actual} in the kernel`);
  }

  /** While the claim's files exist: they are recreated after unprepare. */
  #checkGenerations(claim: SimClaim): void {
    if (this.#node.disk.files.textOf(this.#claimDir(claim)) === undefined) {
      for (const key of this.#generations.keys()) if (key.startsWith(`${claim.uid} `)) this.#generations.delete(key);
      this.#damagedDirs.delete(dirNameOf(claim.name));
      return;
    }
    for (const { request } of claim.devices) {
      const key = `${claim.uid} ${request}`;
      const before = this.#generations.get(key) ?? { generation: 0, text: '' };
      const text = this.#readFile(claim, request) ?? '';
      if (text === before.text || this.wasDamaged(claim.name)) continue;
      const document = this.#toDocument(text);
      if (document === undefined || document.claim.uid !== claim.uid) continue;
      const { generation } = document;
      const isSame = generation === before.generation && text.trim() !== before.text.trim();
      if (generation < before.generation || isSame) {
        const how = isSame
          ? `has two contents of generation ${generation}`
          : `goes from ${before.generation} to ${generation}`;
        this.#violation ??= new Violation('generation', `${key} ${how}`);
      }
      this.#generations.set(key, { generation, text });
    }
  }

  /** A running container sees only the inode that it has mounted. */
  #checkMounts(): void {
    for (const { id, state, sandbox, mounts } of this.#node.runtime.containers.values()) {
      const isDamaged = sandbox.pod.claims.some((name) => this.wasDamaged(name));
      if (state !== 'running' || sandbox.isEnding || sandbox.pod.isDeleted || isDamaged) continue;
      for (const [path, inode] of mounts) {
        const found = this.#node.disk.files.inodeOf(path);
        if (found !== undefined && found !== inode)
          this.#violation ??= new Violation('stale-mount', `${id} does not see the file that ${path} is now`);
      }
    }
  }

  #gateOf(claim: SimClaim): Gate | undefined {
    return parseGate(this.#node.disk.files.textOf(join(this.#claimDir(claim), 'gate')) ?? '');
  }

  #claimDir({ name }: SimClaim): string {
    return join(directoriesOf(this.#node.directories).dataDir, 'dra-device-metadata', dirNameOf(name));
  }

  #readDocument(claim: SimClaim, request: string): MetadataDocument | undefined {
    const text = this.#readFile(claim, request);
    return text === undefined ? undefined : this.#toDocument(text);
  }

  /** A blank file has no content. */
  #toDocument(text: string): MetadataDocument | undefined {
    if (text.trim() === '') return undefined;
    try {
      const document = this.#documents.get(text) ?? decodeStream(text);
      this.#documents.set(text, document);
      return document;
    } catch (error) {
      throw new Violation('torn-file', `a file of metadata cannot be read: ${(error as Error).message}`);
    }
  }

  #readFile(claim: SimClaim, request: string): string | undefined {
    return this.#node.disk.files.textOf(join(this.#claimDir(claim), request, 'metadata.json'));
  }

  /** The one request to the kernel that fails. @param link the one that it names */
  requestFailed(link: SimLink | undefined): void {
    if (link?.parentDevice !== undefined && link.namespace.isHost) this.#unrestored.add(link.parentDevice);
  }

  #moved(link: SimLink, from: Namespace, to: Namespace, by: string | undefined): void {
    this.#node.simulator.trace(
      'kernel',
      () =>
        `${link.parentDevice ?? link.name} goes from ${from.owner ?? 'host'} to ${to.owner ?? 'host'} as ${link.name}`,
    );
    this.returns.moved(link, from, to, by);
    if (!from.isHost) this.#leaves(link, by, from);
    this.#isPlaceChanged = true;
    if (link.parentDevice !== undefined) {
      // Multus tracks the place of a VF that it has moved. A pod may have moved it out again.
      if (to.isHost || by === 'Multus' || from.owner === by) this.#away.delete(link.parentDevice);
      else this.#away.add(link.parentDevice);
    }
    if (to.isHost) return;
    const sandbox = [...this.#node.runtime.sandboxes.values()].find(({ network }) => network === to);
    const vf = this.#node.hardware.vfs.find(({ pciAddress }) => pciAddress === link.parentDevice);
    if (sandbox === undefined || vf === undefined) return;
    const comesBackPartly =
      this.#unrestored.delete(vf.pciAddress) && this.#lastPods.get(vf.pciAddress) === sandbox.pod.uid;
    if (from.isHost && by !== 'Multus' && !comesBackPartly) this.#checkFresh(link, vf, sandbox);
    this.#lastPods.set(vf.pciAddress, sandbox.pod.uid);
    if (this.wasAllocated(vf.name, sandbox.pod.uid)) return;
    this.#violation ??= new Violation('wrong-pod', `${vf.name} goes to ${to.owner}, which has no claim of it`);
  }

  /** A sandbox gets a VF as the host has it, with what its own claim asks for: nothing of an earlier pod. */
  #checkFresh(link: SimLink, vf: SimVf, { id, pod }: SimSandbox): void {
    const { link: found } = this.#node.hardware.foundStateOf(vf);
    const claims = pod.claims.map((name) => this.#node.apiServer.claims.get(name));
    // One that was deleted by force may be gone, and another one may have its name.
    if (!claims.every((claim) => claim?.reservedFor.includes(pod.uid))) return;
    const ofClaims = claims.map((claim) => claim?.plan.config as ClaimSettings);
    const macs = [found?.hardwareAddress, vf.fresh.hardwareAddress, vf.learnt, vf.settings.hardwareAddress];
    const mtus = [found?.mtuBytes, 1500, ...ofClaims.map((config) => config?.mtu)];
    const vlans = [undefined, found === undefined ? undefined : 7, ...ofClaims.map((config) => config?.vf?.vlan)];
    const strange = [
      ...(macs.includes(link.hardwareAddress) ? [] : [`MAC ${link.hardwareAddress}`]),
      ...(mtus.includes(link.mtuBytes) ? [] : [`MTU ${link.mtuBytes}`]),
      ...(link.flags.includes('promiscuous') ? ['promiscuous mode'] : []),
      ...(link.xdp.length === 0 ? [] : ['XDP']),
      ...(link.alias === '' ? [] : [`alias ${link.alias}`]),
      ...(link.altNames.includes('br-ex') ? ['alternative name br-ex'] : []),
      ...(vlans.includes(vf.settings.vlan?.id) || ofClaims.some((config) => config?.cni) || this.kept.isExcused(vf)
        ? []
        : [`VLAN ${vf.settings.vlan?.id}`]),
    ];
    if (strange.length === 0) return;
    this.#violation ??= new Violation(
      'not-fresh',
      `${vf.name} comes to ${id} with ${strange.join(', ')} of an earlier pod`,
    );
  }

  /**
   * Before the driver takes a VF out of a sandbox, it closes the gate and blanks the files that describe it. On the host the VF
   * never has a name that the pod has chosen.
   */
  #checkLeft(link: SimLink, { id }: SimSandbox, from: Namespace, by: string): void {
    const { parentDevice = '' } = link;
    const held = this.#node.registered()?.store.holderOf(parentDevice);
    const device = held?.devices.find(({ pciAddress }) => pciAddress === parentDevice);
    const host = device?.attachment?.host && { ...device.before?.link, ...device.attachment.host };
    // The kernel renames it after the move, in the same call.
    this.#afterStep.push(() => {
      const { name, namespace, altNames } = link;
      if (host === undefined || !namespace.isHost || by === 'CNI plugin') return;
      const isRight = name === host.name || isFallbackName(name);
      const known = [...(host.altNames ?? []), host.name];
      const others = this.#node.hasLostRequest ? [] : altNames.filter((each) => !known.includes(each));
      if (isRight && others.length === 0) return;
      const names = [name, ...others].join(' and ');
      this.#violation ??= new Violation('name-on-host', `${parentDevice} of ${id} comes to the host as ${names}`);
    });
    const [bond] = device?.config.bond === undefined ? [] : ownBondsIn(from);
    // Without an answer to its request it goes on, and one whose sandbox cannot be reached is made anew: the end of the sandbox
    // removes the bond, too.
    if (bond !== undefined && !link.isGone && !this.#node.hasLostRequest)
      this.#violation ??= new Violation(
        'bond-left',
        `${parentDevice} leaves ${id} before its bond ${bond.name} is deleted`,
      );
    const claim = this.#node.apiServer.claims.get(held?.identity.name ?? '');
    if (held?.state !== 'prepared' || claim?.uid !== held.identity.uid || device === undefined) return;
    const gate = this.#gateOf(claim);
    const isOpen = gate?.state === 'served' && gate.sandboxId === id;
    const isBlank = (this.#readFile(claim, device.request) ?? '').trim() === '';
    if (!isOpen && (isBlank || this.wasDamaged(claim.name))) return;
    this.#violation ??= new Violation('left-open', `${parentDevice} leaves ${id} before ${claim.name} is withdrawn`);
  }

  /** A VF must not be taken from a running container. */
  #leaves(link: SimLink, by: string | undefined, from: Namespace = link.namespace): void {
    if (by === undefined || from.isHost) return;
    const sandbox = [...this.#node.runtime.sandboxes.values()].find(({ network }) => network === from);
    if (sandbox === undefined) return;
    if (by === sandbox.id) {
      this.#leftAtMs.set(link.parentDevice ?? '', this.#node.simulator.nowMs);
      this.#movedOut.add(sandbox.pod);
      this.#lookForLeft(sandbox);
      return;
    }
    if (by !== 'Multus') this.#checkLeft(link, sandbox, from, by);
    const isRunning = this.#node.runtime.containersOf(sandbox).some(({ state }) => state === 'running');
    if (!isRunning) return;
    this.#violation ??= new Violation(
      'taken-away',
      `${by} takes ${link.parentDevice} from the running pod in ${sandbox.id}`,
    );
  }
}

/** The directory of a claim's files. */
function dirNameOf(claimName: string): string {
  return `default_${claimName}`;
}

/** Returns whether a link, with all its routes, is in a VRF. */
function isIn({ name, table }: { name: string; table: number }, { vrf, used }: SimLink): boolean {
  return vrf?.name === name && vrf.vrfTable === table && vrf.up && used.routes.every((each) => each.table === table);
}

function hasRouterAddress({ addresses }: SimLink): boolean {
  return [...addresses.values()].some(({ dynamic, tentative }) => dynamic && !tentative);
}

/** Bonds that the driver has made, also those that have no name of their own yet. */
function ownBondsIn({ links }: Namespace): SimLink[] {
  return links.filter(({ kind, alias, name }) => {
    return kind === 'bond' && (alias.startsWith('netdra:bond:') || /^netdra-[0-9a-f]{8}$/.test(name));
  });
}
