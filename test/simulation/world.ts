import { mkdirSync, rmSync } from 'node:fs';
import type { StoredClaim, StoredCondition, StoredDevice } from '../../src/driver/model/index.ts';
import type { InventoryPolicy } from '../../src/node/inventory/inventory-policy.ts';
import { ApiServer, type SimClaim } from './api-server.ts';
import { Checks, Violation } from './checks.ts';
import { CniNode } from './cni.ts';
import { damage, loseLastClaim } from './damage.ts';
import type { MemoryDatabases } from './databases.ts';
import type { Disk } from './disk.ts';
import { withGuarantees } from './guarantees.ts';
import { Hardware, type SimVf } from './hardware.ts';
import { type Directories, directoriesOf, Instance, settingsDirs } from './instance.ts';
import { Kernel } from './kernel.ts';
import { Kubelet } from './kubelet.ts';
import type { Namespace, SimLink } from './links.ts';
import { Liveness } from './liveness.ts';
import {
  type ClaimPlan,
  drawPlan,
  type Fault,
  type Plan,
  type PodPlan,
  type ReadFault,
  reconcileMsOf,
} from './plan.ts';
import type { Plant } from './planted/plant.ts';
import type { AttachmentChanges } from './returns.ts';
import { rpc } from './rpc.ts';
import { Runtime } from './runtime.ts';
import type { SimContainer } from './sandboxes.ts';
import { epochMs, Killed, type Process, type Simulator } from './simulator.ts';

/** A pod as seen by the API server and the kubelet. */
export interface SimPod {
  uid: string;
  plan: PodPlan;
  restartPolicy: 'Always' | 'Never';
  /** Names of its claims. */
  claims: string[];
  /** The scheduler has chosen the node. */
  isBound: boolean;
  /** Its deletion was requested. */
  isDeleted: boolean;
  deletedAtMs: number | undefined;
  isFailed: boolean;
  /** The kubelet has no more work for it. */
  isDone: boolean;
  cancel: AbortController;
}

interface Faults {
  lostRate: number;
  lockedRate: number;
  diskFullUntilMs: number;
  diskErrors: number;
  storeErrors: number;
  /** Statements that still succeed before the one that fails. */
  statementsBefore: number;
  /** Changes of the disk that still succeed before the one that fails. */
  changesBefore: number;
  /** Requests to the kernel that are still answered before one is lost; absent: all are. */
  requestsBefore: number | undefined;
  /** Whether only those count that change something. */
  isOfChanges: boolean;
  reads: { of: ReadFault['of']; untilMs: number } | undefined;
}

const everySecondMs = 1_000;
/** Time for pods to run, once there are no more faults. */
const runMs = 300_000;
/** The same where nothing else is looked at: the pauses between two attempts are 10 s at most. */
const liveMs = 100_000;
/** Until the driver returns a VF to the host that another component has left in a sandbox. */
const observedMs = 240_000;
/** Time for slices and status to show it. */
const reportMs = 240_000;
/** Rounds of reconciliation that may be needed one after the other. */
const mostRounds = 10;
/** How long a link that has flapped keeps its taint. */
const longestHoldMs = 640_000;
/** Of the first moment of a simulation. */
/** How long they continue to run afterwards. */
const runOnMs = 20_000;
/** Time for a node to return to its initial state, once there are no more faults and all pods were deleted. */
export const settleMs = 600_000;
const settleStepMs = 2_000;

/** Survives processes, and the schedule. */
export interface Place {
  directories: Directories;
  disk: Disk;
  databases: MemoryDatabases;
  plant: Plant | undefined;
}

/** The node, the cluster around it, and the events that affect both. */
export class Node {
  readonly simulator: Simulator;
  readonly plan: Plan;
  readonly kernel: Kernel;
  readonly hardware: Hardware;
  readonly cni: CniNode;
  readonly apiServer: ApiServer;
  readonly runtime: Runtime;
  readonly kubelet: Kubelet;
  readonly directories: Directories;
  readonly databases: MemoryDatabases;
  /** A bug of the driver. */
  readonly plant: Plant | undefined;
  readonly checks: Checks;
  readonly liveness: Liveness;
  readonly pods: SimPod[] = [];
  readonly instances: Instance[] = [];
  readonly faults: Faults = {
    lostRate: 0,
    lockedRate: 0,
    diskFullUntilMs: 0,
    diskErrors: 0,
    storeErrors: 0,
    statementsBefore: 0,
    changesBefore: 0,
    requestsBefore: undefined,
    isOfChanges: false,
    reads: undefined,
  };
  isCalm = false;
  /** The operator's choice of devices. */
  policy: InventoryPolicy = {};
  bootCount = 1;
  readonly disk: Disk;
  #isAside = false;
  readonly #processes = new Set<Process>();
  #instanceCount = 0;
  #driverAwayUntilMs = 0;
  #claimCount = 0;
  surprise: unknown;
  #disturbedUntilMs = 0;
  #stallInWait: Extract<Fault, { kind: 'stall in wait' }> | undefined;
  #clockStepMs = 0;
  /** Number of changes after which the next instance is killed, in place of the plan's. */
  #killAfter: number | undefined;
  /** Whether the answer to a request to the kernel was ever lost. */
  hasLostRequest = false;

  constructor(simulator: Simulator, { directories, disk, databases, plant }: Place, plan = drawPlan(simulator.tape)) {
    this.plant = plant;
    this.simulator = simulator;
    this.directories = directories;
    this.databases = databases;
    this.disk = disk;
    this.plan = plan;
    simulator.tape.slowShare = plan.slowShare;
    simulator.tape.instantShare = plan.instantShare;
    simulator.trace('plan', () => JSON.stringify(plan));
    const { renamesLinksThatAreUp, udevAddsAltNames, hasIpv6 } = plan;
    this.kernel = new Kernel({
      simulator,
      renamesLinksThatAreUp,
      udevAddsAltNames,
      hasIpv6,
      udevNameOf: ({ parentDevice = '' }) => this.hardware.find(parentDevice)?.fresh.name,
    });
    const hasBonds = plan.pods.some(({ claims }) => claims.some(({ isBond }) => isBond));
    const { vfs: count, writesInVain } = plan;
    this.hardware = new Hardware({ kernel: this.kernel, simulator, count, writesInVain, pfs: hasBonds ? 2 : 1 });
    this.cni = new CniNode({ simulator, kernel: this.kernel, hardware: this.hardware });
    this.cni.failureRate = plan.cniFailureRate;
    this.cni.hangRate = plan.cniHangRate;
    this.apiServer = new ApiServer(simulator);
    const { readsPast: isBehind = false, skipsStates = false } = plan;
    Object.assign(this.apiServer, { errorRate: plan.apiErrorRate, isBehind, skipsStates });
    this.apiServer.pods = this.pods;
    Object.assign(this.faults, { lostRate: plan.lostRate, lockedRate: plan.lockedRate });
    this.#resetPolicy();
    if (this.policy.health !== undefined) this.hardware.setPartner(true);
    this.runtime = new Runtime(this);
    this.kubelet = new Kubelet(this);
    this.checks = new Checks(this);
    this.liveness = new Liveness(this);
    this.apiServer.onEvent = (event, process) => {
      this.checks.waits.eventWritten(event, process);
      this.liveness.eventWritten(event);
    };
    this.cni.onDone = (...done) => this.checks.waits.pluginTook(...done);
    disk.user = {
      process: () => this.#driver(),
      error: (isGrowing) => this.#diskError(isGrowing),
      readError: () => (this.readFails('files') ? (this.simulator.nowMs % 2 < 1 ? 'EIO' : 'EMFILE') : undefined),
      onChange: () => this.checks.filesChanged(),
    };
  }

  /** @throws Violation */
  async run(): Promise<void> {
    const { simulator, plan } = this;
    this.#startInstance();
    this.kubelet.start();
    for (const [index, pod] of plan.pods.entries()) this.#schedulePod(pod, index);
    for (const fault of plan.faults) simulator.schedule(fault.atMs, undefined, fault.kind, () => this.#inflict(fault));
    const check = () => {
      if (this.surprise !== undefined) throw this.surprise;
      this.checks.afterStep();
    };
    await simulator.runUntil(plan.calmAtMs, check);
    this.#calmDown();
    // Rounds that are farther apart than usual take longer.
    const more = (reconcileMsOf(plan) - reconcileMsOf({})) * mostRounds;
    if (plan.isOnlyLive) {
      const isObserved = plan.pods.some(({ claims }) => claims.some(({ attach }) => attach === 'observe'));
      const withinMs = liveMs + more + (isObserved ? observedMs : 0);
      return await this.#await('not-live', withinMs, () => this.liveness.silent(), check);
    }
    await this.#await('not-running', runMs + more, () => this.checks.waiting(), check);
    const holdMs = plan.faults.some(({ kind }) => kind === 'cable out' || kind === 'partner lost') ? longestHoldMs : 0;
    await this.#await('not-reported', reportMs + holdMs + more, () => this.checks.disagreements(), check);
    await simulator.runUntil(simulator.nowMs + runOnMs, check);
    this.checks.bounds();
    simulatorTrace(this, 'all pods are deleted');
    for (const pod of this.pods) this.#delete(pod, false);
    await this.#await('not-settled', settleMs + more, () => this.checks.remaining(), check);
  }

  /** @throws Violation if the list is not empty in time */
  async #await(rule: string, withinMs: number, list: () => Iterable<string>, check: () => void): Promise<void> {
    const { simulator } = this;
    const endsAtMs = simulator.nowMs + withinMs;
    // Only the end needs the whole list.
    for (let [left] = list(); left !== undefined; [left] = list()) {
      this.checks.bounds();
      if (simulator.nowMs >= endsAtMs) {
        throw new Violation(rule, `after ${withinMs / 1_000} s without faults: ${[...list()].join('; ')}`);
      }
      await simulator.runUntil(simulator.nowMs + settleStepMs, check);
    }
  }

  end(): void {
    for (const { process } of this.instances) process.kill();
    this.runtime.process.kill();
    this.kubelet.process.kill();
    this.simulator.end();
    this.disk.user = undefined;
  }

  claimsOf({ claims }: SimPod): SimClaim[] {
    return claims.map((name) => {
      const claim = this.apiServer.claims.get(name);
      if (claim === undefined) throw new Error(`claim ${name} does not exist`);
      return claim;
    });
  }

  /** The instance that the kubelet calls: the one that registered last. */
  registered(): Instance | undefined {
    return this.instances.findLast(({ isStarted, process }) => isStarted && process.isAlive);
  }

  onContainerRuns(container: SimContainer): void {
    this.checks.containerRuns(container);
    const { simulator } = this;
    const { tape } = simulator;
    const { pod } = container.sandbox;
    if (this.isCalm || pod.plan.isOnHost) return;
    if (pod.plan.vfLeavesTo !== undefined && tape.chance(0.7, 'more')) {
      const atMs = 200 + 5_000 * tape.fraction('more');
      const againMs = 100 + 8_000 * tape.fraction('back');
      for (const ms of tape.chance(0.5, 'back') || pod.plan.leavesTwice === true ? [0, againMs] : [0])
        simulator.schedule(atMs + ms, undefined, 'pod moves a VF', () => this.#moveOut(container));
    }
    for (let left = pod.plan.mutations; left > 0; left--) {
      simulator.schedule(tape.delay(200, 8_000), undefined, 'pod changes its interface', () => this.#mutate(container));
    }
    if (pod.plan.exits > 0) {
      pod.plan.exits -= 1;
      simulator.schedule(tape.delay(300, 8_000), undefined, 'container ends', () => {
        if (container.state === 'running') this.runtime.stopContainer(container, 'exit');
      });
    }
  }

  onGateTimeout(container: SimContainer): void {
    simulatorTrace(this, `container ${container.id} waited in vain`);
  }

  onPodFailed(pod: SimPod, container: SimContainer): void {
    this.checks.podFailed(pod, container);
  }

  onSurprise(error: unknown): void {
    // In a process that has ended, nothing follows from it.
    if (!(error instanceof Killed)) this.surprise ??= error;
  }

  beforeStored(change: string, [first, second]: readonly unknown[], process: Process): void {
    if (change === 'setAttachments')
      this.checks.returns.attachmentsChange(String(first), second as AttachmentChanges, process);
  }

  onStored(change: string, argument: unknown, process: Process): void {
    this.checks.storeChanged();
    const { guarantees, model } = this.checks;
    if (change === 'putClaim') for (const each of [guarantees, model]) each.claimStored(argument as StoredClaim);
    if (change === 'deleteClaim') for (const each of [guarantees, model]) each.claimDeleted(String(argument));
    if (change === 'deleteUnrestored') model.freed((argument as StoredDevice).pciAddress, 'a repair');
    if (change === 'putCondition') this.checks.reports.conditionStored(argument as StoredCondition);
    if (/^(release|delete)Claim$/.test(change)) this.checks.reports.released(String(argument), process);
  }

  /** @throws Error of SQLite, if it is to fail */
  beforeStatement(isRead: boolean): void {
    const { faults } = this;
    if (isRead) {
      if (this.readFails('store')) throw Object.assign(new Error('disk I/O error'), { errcode: 10 });
    } else if (faults.storeErrors > 0 && faults.statementsBefore-- <= 0) {
      faults.storeErrors -= 1;
      this.#disturb(0);
      throw Object.assign(new Error('database or disk is full'), { errcode: 13 });
    }
  }

  /** Reads for a check within a call of the driver: its faults are not for the check. */
  aside<T>(read: () => T): T {
    this.#isAside = true;
    try {
      return read();
    } finally {
      this.#isAside = false;
    }
  }

  /** Whether the current read fails: those of the driver, not those of the checks. */
  readFails(of: ReadFault['of']): boolean {
    const { reads } = this.faults;
    if (this.#isAside) return false;
    if (reads?.of !== of || this.simulator.nowMs >= reads.untilMs || this.#driver() === undefined) return false;
    return this.simulator.tape.chance(0.5, 'reads');
  }

  /** Whether the answer to the current request to the kernel gets lost. @param link the one that it names by its index */
  isRequestLost(isChange: boolean, link: SimLink | undefined): boolean {
    const { faults, simulator } = this;
    const counts = isChange || !faults.isOfChanges;
    if (counts && faults.requestsBefore !== undefined && faults.requestsBefore-- <= 0) {
      faults.requestsBefore = undefined;
      this.#disturb(0);
      this.hasLostRequest = true;
      this.checks.requestFailed(link);
      return true;
    }
    const isLost = simulator.tape.chance(faults.lostRate, 'kernel');
    this.hasLostRequest ||= isLost;
    return isLost;
  }

  /** The instance of the driver whose code is running. */
  #driver(): Process | undefined {
    const { current } = this.simulator;
    return current !== undefined && this.#processes.has(current) ? current : undefined;
  }

  /** The pod has ended: its claims are available to others. */
  releaseClaims(pod: SimPod): void {
    for (const name of pod.claims) {
      const claim = this.apiServer.claims.get(name);
      if (claim === undefined) continue;
      claim.reservedFor = claim.reservedFor.filter((uid) => uid !== pod.uid);
      if (claim.reservedFor.length > 0) continue;
      if (claim.isTemplate) this.apiServer.claims.delete(name);
      // The kubelet that still holds the claim makes no second call for the next pod: that one would get the CDI device of
      // the old VF, or Multus would move the new one before it is prepared, whatever the driver does.
      else if (claim.plan.attach === 'netlink' || claim.plan.attach === 'cni') claim.devices = [];
    }
    if (this.plan.readsPast) this.apiServer.changed();
  }

  /** The pod is gone from the API server. */
  remove(pod: SimPod): void {
    this.releaseClaims(pod);
  }

  #startInstance(): void {
    const name = `driver-${++this.#instanceCount}`;
    const killAfter = this.isCalm ? undefined : (this.#killAfter ?? this.plan.killAfter[this.#instanceCount - 1]);
    this.#killAfter = undefined;
    let instance: Instance;
    try {
      const { settings, isShared } = this.plan;
      const chosen = settings[this.#instanceCount - 1] ?? settings.at(-1) ?? settings[0];
      instance = new Instance(this, name, { isShared, chosen });
    } catch (error) {
      simulatorTrace(this, `${name} does not start: ${(error as Error).message}`);
      this.#restartLater();
      return;
    }
    this.instances.push(instance);
    this.#disturb(0);
    const { process } = instance;
    this.#processes.add(process);
    if (killAfter !== undefined && killAfter > 0) process.killAfter(killAfter);
    process.onEnd(() => {
      this.#processes.delete(process);
      this.#disturb(0);
      instance.isStarted = false;
      this.#restartLater();
    });
    this.simulator.schedule(20, process, 'start', () => {
      instance.start().catch((error: unknown) => {
        simulatorTrace(this, `${name} cannot start: ${(error as Error).message}`);
        process.kill();
      });
    });
  }

  /** The kubelet restarts the driver's container, unless there is another instance. */
  #restartLater(): void {
    const { simulator } = this;
    const awayMs = this.#driverAwayUntilMs - simulator.nowMs;
    simulator.schedule(Math.max(awayMs, simulator.tape.delay(500, 20_000)), undefined, 'restart of the driver', () => {
      if (this.instances.some(({ process }) => process.isAlive)) return;
      this.#startInstance();
    });
  }

  /** An NRI plugin registers with the runtime, and again after the connection has ended. */
  connectToRuntime(instance: Instance): void {
    const { process } = instance;
    const { runtime, simulator } = this;
    const what = 'register as NRI plugin';
    const handle = () => runtime.connect(instance);
    rpc(simulator, { from: process, to: runtime.process, what, timeoutMs: 60_000, handle }).then(
      () => undefined,
      () => this.reconnect(instance),
    );
  }

  reconnect(instance: Instance): void {
    this.simulator.schedule(1_000, instance.process, 'reconnect', () => {
      if (instance.isStarted && !this.runtime.isConnected(instance)) this.connectToRuntime(instance);
    });
  }

  #schedulePod(plan: PodPlan, index: number): void {
    const pod: SimPod = {
      uid: `pod-${index + 1}`,
      plan,
      restartPolicy: plan.restartPolicy,
      claims: [],
      isBound: false,
      isDeleted: false,
      deletedAtMs: undefined,
      isFailed: false,
      isDone: false,
      cancel: new AbortController(),
    };
    this.pods.push(pod);
    this.simulator.schedule(plan.arrivesAtMs, undefined, `${pod.uid} arrives`, () => this.#bind(pod, index));
    if (plan.deletedAfterMs !== undefined) {
      const atMs = plan.arrivesAtMs + plan.deletedAfterMs;
      this.simulator.schedule(atMs, undefined, `${pod.uid} is deleted`, () => this.#delete(pod, plan.isForced));
    }
  }

  /** The scheduler: allocates free devices, or retries later. */
  #bind(pod: SimPod, index: number): void {
    if (pod.isDeleted) return;
    const before = this.pods[index - 1];
    const isTakingOver = pod.plan.takesOver && before?.isBound === true;
    const isSharing = pod.plan.shares && before?.isBound === true && !before.isDeleted;
    const claims: SimClaim[] = [];
    for (const [number, plan] of pod.plan.claims.entries()) {
      const shared =
        number === 0 && (isTakingOver || isSharing) ? this.apiServer.claims.get(before.claims[0] ?? '') : undefined;
      // A VF can only be in one pod.
      const isInUse =
        !isSharing && shared?.reservedFor.some((uid) => this.pods.some((pod) => pod.uid === uid && !pod.isDeleted));
      if (isInUse) return void this.#bindLater(pod, index);
      const isTemplate = !(number === 0 && this.pods[index + 1]?.plan.takesOver === true);
      claims.push(shared ?? this.#createClaim(plan, isTemplate, claims));
    }
    const taken = new Set([...this.apiServer.claims.values()].flatMap(devicesHeldBy));
    const allocations = new Map<SimClaim, SimClaim['devices']>();
    for (const claim of claims.filter(({ devices }) => devices.length === 0)) {
      const { vfs, adminAccess, isOneRequest, isBond = false } = claim.plan;
      // Claims of the simulation tolerate nothing.
      const schedulable = this.apiServer.offered().filter(({ taints = [] }) => taints.length === 0);
      const offered = new Set(schedulable.map(({ name }) => name));
      const available = this.hardware.vfs.filter(({ name }) => offered.has(name) && (adminAccess || !taken.has(name)));
      const inOrder = this.simulator.tape.chance(0.4) ? available.toReversed() : available;
      const free = (isBond ? ofDifferentPfs(inOrder) : inOrder).slice(0, vfs);
      const counters = this.plan.bandwidth?.isCounted && !adminAccess ? this.apiServer.countersLeft(taken) : undefined;
      const chosen = schedulable.filter(({ name }) => free.some((vf) => vf.name === name));
      const isEnough = counters === undefined || chosen.every((device) => counters.take(device));
      if (free.length < vfs || !isEnough) return void this.#bindLater(pod, index);
      const devices = free.map(({ name: device }, index) => {
        return { request: isOneRequest ? 'nic' : `nic${index}`, device, adminAccess };
      });
      allocations.set(claim, devices);
      for (const device of devicesHeldBy({ devices })) taken.add(device);
    }
    for (const [claim, devices] of allocations) claim.devices = devices;
    for (const claim of claims) {
      this.apiServer.add(claim);
      claim.reservedFor.push(pod.uid);
    }
    pod.claims = claims.map(({ name }) => name);
    pod.isBound = true;
    if (this.plan.readsPast) this.apiServer.changed();
    this.checks.bound(pod);
    this.kubelet.add(pod);
    simulatorTrace(
      this,
      () => `${pod.uid} is bound: ${claims.map(({ name, devices }) => `${name} with ${devicesHeldBy({ devices })}`)}`,
    );
  }

  #createClaim(plan: ClaimPlan, isTemplate: boolean, others: readonly SimClaim[]): SimClaim {
    const own = `claim-${++this.#claimCount}`;
    const gone = this.pods.filter(({ isDeleted }) => isDeleted).flatMap(({ claims }) => claims);
    const isFree = (each: string) => !this.apiServer.claims.has(each) && others.every(({ name }) => name !== each);
    const name = (this.plan.reusesNames ? gone.find(isFree) : undefined) ?? own;
    return { uid: `uid-${own}`, name, plan, devices: [], reservedFor: [], isTemplate };
  }

  #bindLater(pod: SimPod, index: number): void {
    this.simulator.schedule(everySecondMs, undefined, `${pod.uid} is pending`, () => this.#bind(pod, index));
  }

  #delete(pod: SimPod, isForced: boolean): void {
    if (pod.isDeleted) return;
    simulatorTrace(this, `${pod.uid} is deleted${isForced ? ' by force' : ''}`);
    pod.isDeleted = true;
    pod.deletedAtMs = this.simulator.nowMs;
    if (this.plan.readsPast) this.apiServer.changed();
    if (!pod.isBound) pod.isDone = true;
    if (isForced) this.releaseClaims(pod);
    if (!this.plan.kubeletCancels) return;
    this.simulator.schedule(1, this.kubelet.process, `${pod.uid} is to end`, () =>
      pod.cancel.abort(new Error('the pod is being deleted')),
    );
  }

  /** Whether nothing has kept the driver from its work for this time. */
  isUndisturbedFor(ms: number): boolean {
    return this.simulator.nowMs - this.#disturbedUntilMs >= ms && this.registered() !== undefined;
  }

  /** The time that files have: unlike that of the simulation, it may be set. */
  wallMs(): number {
    return epochMs + this.simulator.nowMs + this.#clockStepMs;
  }

  #disturb(forMs: number): void {
    this.#disturbedUntilMs = Math.max(this.#disturbedUntilMs, this.simulator.nowMs + forMs);
  }

  #inflict(fault: Fault): void {
    const { simulator, runtime, kubelet, faults, apiServer } = this;
    const { nowMs } = simulator;
    // A cable, a switch or a plugin that is slow does not keep the driver from its work.
    const isHarmless = ['cable out', 'partner lost', 'devices slow', 'settings lost'].includes(fault.kind);
    if (!isHarmless) this.#disturb('forMs' in fault ? fault.forMs : 0);
    simulatorTrace(this, `fault: ${JSON.stringify(fault)}`);
    const driver = this.registered();
    switch (fault.kind) {
      case 'kill driver':
        this.#keepDriverAway(fault.forMs);
        break;
      case 'stall driver':
        if (driver !== undefined) driver.process.stalledUntilMs = nowMs + fault.forMs;
        break;
      case 'stall in wait':
        this.#stallInWait = fault;
        break;
      case 'restart kubelet':
        kubelet.restart(fault.forMs, fault.isStateLost);
        break;
      case 'reboot':
        this.#boot(fault.forMs);
        break;
      case 'restart runtime':
        runtime.restart(fault.forMs);
        break;
      case 'lose sandbox':
        if (fault.isDriverAway) this.#keepDriverAway(fault.forMs);
        this.#loseSandbox();
        break;
      case 'API server away':
        apiServer.goDown(fault.forMs);
        break;
      case 'disk full':
        faults.diskFullUntilMs = nowMs + fault.forMs;
        break;
      case 'disk error':
        Object.assign(faults, { diskErrors: faults.diskErrors + 1, changesBefore: 0 });
        break;
      case 'store error':
        faults.storeErrors += 1;
        faults.statementsBefore = simulator.tape.below(6, 'more');
        break;
      case 'one fails':
        if (fault.of === 'disk') Object.assign(faults, { diskErrors: 1, changesBefore: fault.after });
        else if (fault.of === 'store') Object.assign(faults, { storeErrors: 1, statementsBefore: fault.after });
        else Object.assign(faults, { requestsBefore: fault.after, isOfChanges: fault.of === 'links' });
        break;
      case 'stall runtime':
        runtime.process.stalledUntilMs = nowMs + fault.forMs;
        break;
      case 'stall kubelet':
        kubelet.process.stalledUntilMs = nowMs + fault.forMs;
        break;
      case 'clock step':
        this.#clockStepMs += fault.byMs;
        break;
      case 'damage file':
        if (fault.of === 'CDI spec') this.#keepDriverAway(1_000);
        damage(this, fault);
        break;
      case 'reads fail':
        faults.reads = { of: fault.of, untilMs: nowMs + fault.forMs };
        break;
      case 'change policy':
        this.policy = withGuarantees(
          simulator.tape.pick<InventoryPolicy>([{ pfs: [] }, { pfs: [{ select: {}, vfs: '0' }] }]),
          this.plan.bandwidth,
          this.plan.bandwidth?.otherMbps,
        );
        simulator.schedule(fault.forMs, undefined, 'policy is changed back', () => this.#resetPolicy());
        break;
      case 'update driver':
        this.#update(fault);
        break;
      default:
        this.#inflictOnCard(fault);
    }
  }

  #inflictOnCard(fault: Fault): void {
    const { simulator, hardware } = this;
    const { nowMs } = simulator;
    switch (fault.kind) {
      case 'reset card':
        this.checks.cardReset();
        hardware.reset();
        this.#hamperReturn();
        break;
      case 'settings lost':
        this.checks.kept.lose(fault);
        break;
      case 'cable out':
        this.#setCable(false);
        simulator.schedule(fault.forMs, undefined, 'cable is plugged in', () => {
          this.checks.reports.cablePluggedIn(fault.forMs);
          this.#setCable(true);
        });
        break;
      case 'partner lost':
        this.checks.reports.partnerLost();
        hardware.setPartner(false);
        simulator.schedule(fault.forMs, undefined, 'partner is back', () => {
          this.checks.reports.partnerBack(fault.forMs);
          hardware.setPartner(true);
        });
        break;
      case 'card refuses':
        hardware.refusesUntilMs = nowMs + fault.forMs;
        break;
      case 'devices slow':
        this.cni.slowUntilMs = nowMs + fault.forMs;
        hardware.lateUntilMs = nowMs + fault.forMs;
        break;
      case 'interfaces late':
        hardware.lateUntilMs = nowMs + fault.forMs;
        break;
    }
  }

  #loseSandbox(): void {
    const sandbox = this.runtime.list().find(({ state }) => state === 'ready');
    if (sandbox !== undefined) this.runtime.loseSandbox(sandbox);
  }

  /** A process has found the lock of a claim taken. */
  onLockTaken(process: Process): void {
    const fault = this.#stallInWait;
    if (fault === undefined || this.registered()?.process !== process) return;
    this.#stallInWait = undefined;
    simulatorTrace(this, `${process.name} stops while it waits for a lock`);
    this.#disturb(fault.forMs);
    process.stalledUntilMs = this.simulator.nowMs + fault.forMs;
    this.simulator.schedule(fault.lostAfterMs, undefined, 'lose sandbox', () => this.#loseSandbox());
  }

  #setCable(isPlugged: boolean): void {
    for (const id of this.hardware.setCable(isPlugged)) this.checks.podChanges({ id });
  }

  #resetPolicy(): void {
    const { vfs, writesInVain, faults, bandwidth } = this.plan;
    const policy: InventoryPolicy = writesInVain === undefined ? {} : { pfs: [{ select: {}, numVfs: vfs }] };
    if (faults.some(({ kind }) => kind === 'partner lost')) policy.health = { lacpRelay: true };
    this.policy = withGuarantees(policy, bandwidth);
  }

  /** All processes end, the card is reset to its initial state, and the content of tmpfs is lost. */
  #boot(forMs: number): void {
    const { kubelet, runtime, hardware, kernel, directories } = this;
    this.bootCount += 1;
    this.#keepDriverAway(forMs + 1_000);
    kubelet.restart(forMs);
    runtime.boot(forMs);
    kernel.boot();
    hardware.reset();
    this.checks.booted();
    const { cdiDir } = directoriesOf(directories);
    const { attributesDir, deviceInfoDir } = settingsDirs(directories);
    for (const dir of [cdiDir, attributesDir, deviceInfoDir]) rmSync(dir, { recursive: true, force: true });
    mkdirSync(cdiDir);
    const { losesLast = false, killAfter } = this.plan.boot ?? {};
    this.#killAfter = killAfter;
    if (losesLast) loseLastClaim(this);
  }

  /** Ends all instances; none starts for some time. */
  #keepDriverAway(forMs: number): void {
    this.#driverAwayUntilMs = this.simulator.nowMs + forMs;
    for (const { process } of [...this.instances]) process.kill();
  }

  /** A rolling update: the new instance starts beside the old one, which ends some time later. */
  #update({ forMs, isKilled }: { forMs: number; isKilled: boolean }): void {
    const old = this.registered();
    this.#startInstance();
    this.simulator.schedule(forMs, old?.process, 'the old instance ends', () => {
      if (old === undefined) return;
      if (isKilled) return old.process.kill();
      simulatorTrace(this, `${old.process.name} is stopped`);
      this.#inBackground(old.stop().then(() => old.process.kill()));
      this.simulator.schedule(30_000, old.process, 'end of the grace period', () => old.process.kill());
    });
  }

  #diskError(isGrowing: boolean): 'ENOSPC' | 'EIO' | undefined {
    const { faults } = this;
    if (isGrowing && this.simulator.nowMs < faults.diskFullUntilMs) return 'ENOSPC';
    if (faults.diskErrors <= 0 || faults.changesBefore-- > 0) return undefined;
    faults.diskErrors -= 1;
    this.#disturb(0);
    return 'EIO';
  }

  /** Actions of a pod with NET_ADMIN. */
  #mutate(container: SimContainer): void {
    if (container.state !== 'running') return;
    const { tape } = this.simulator;
    const { network, id } = container.sandbox;
    const link = this.#anyVfIn(network);
    if (link === undefined) return;
    this.checks.podChanges(container.sandbox);
    const change = tape.pick(['mtu', 'name', 'MAC', 'altname', 'flags', 'qdisc', 'address', 'alias', 'XDP']);
    this.simulator.trace(id, `changes ${change} of ${link.name}`);
    const set = (what: object) => this.kernel.change(network, link.index, what, undefined, id);
    try {
      if (change === 'mtu') set({ mtuBytes: 1280 });
      else if (change === 'name') {
        set({ up: false });
        set({ name: tape.pick(['mine', 'eth9', 'ens1v0']) });
        set({ up: true });
      } else if (change === 'MAC') set({ hardwareAddress: '02:66:66:66:66:66' });
      else if (change === 'altname') this.kernel.addAltName(network, link.index, tape.pick(['br-ex', 'ens1v1']));
      else if (change === 'flags') set({ flags: { promiscuous: true } });
      else if (change === 'qdisc') this.kernel.setQdisc(network, link.index, 'root', 'fq');
      else if (change === 'address') this.kernel.addAddress(network, link.index, '198.51.100.9/24');
      else if (change === 'alias') set({ alias: 'mine' });
      else link.xdp = ['generic'];
    } catch (error) {
      this.simulator.trace(id, `is refused: ${(error as Error).message}`);
    }
    this.checks.podHasChanged(container.sandbox);
  }

  /** A process of the pod moves a VF out of it. */
  #moveOut(container: SimContainer): void {
    const { sandbox } = container;
    const { network, id, pod } = sandbox;
    const link = container.state === 'running' ? this.#anyVfIn(network) : undefined;
    if (link === undefined) return;
    this.checks.podChanges(sandbox);
    const isToHost = pod.plan.vfLeavesTo === 'host';
    if (!isToHost) sandbox.ownNamespace ??= this.kernel.createNamespace(`${id} itself`, sandbox);
    try {
      this.kernel.change(network, link.index, {}, sandbox.ownNamespace ?? this.kernel.host, id);
    } catch (error) {
      this.simulator.trace(id, `is refused: ${(error as Error).message}`);
    }
    this.#hamperReturn();
  }

  /** The interface of one of the VFs in a pod. */
  #anyVfIn({ links }: Namespace): SimLink | undefined {
    const [first, ...others] = links.filter(({ parentDevice }) => parentDevice !== undefined);
    return first && this.simulator.tape.pick([first, ...others], 'back');
  }

  /** A VF has left its pod: what the driver does then may fail at first. */
  #hamperReturn(): void {
    const { tape } = this.simulator;
    if (this.isCalm || !tape.chance(0.4, 'back')) return;
    const forMs = 200 + Math.floor(5_000 * tape.fraction('back') ** 2);
    const when = { atMs: 0, forMs };
    const fault = tape.pick<Fault>(
      [
        { kind: 'card refuses', ...when },
        { kind: 'reads fail', of: 'card', ...when },
        { kind: 'reads fail', of: 'files', ...when },
        { kind: 'reads fail', of: 'store', ...when },
        { kind: 'disk error', ...when },
        { kind: 'disk full', ...when },
        { kind: 'store error', ...when },
        { kind: 'kill driver', ...when },
        { kind: 'interfaces late', ...when },
      ],
      'back',
    );
    this.#inflict(fault);
  }

  #calmDown(): void {
    const { faults, cni, apiServer } = this;
    this.isCalm = true;
    this.liveness.faultsEnd();
    this.#stallInWait = undefined;
    const { lostRate, lockedRate, apiErrorRate } = this.plan;
    if (lostRate + lockedRate + apiErrorRate > 0) this.#disturb(0);
    simulatorTrace(this, 'faults end');
    Object.assign(this.hardware, { refusesUntilMs: 0, lateUntilMs: 0 });
    const none = { lostRate: 0, lockedRate: 0, diskFullUntilMs: 0, diskErrors: 0, storeErrors: 0 };
    Object.assign(faults, { ...none, reads: undefined, requestsBefore: undefined });
    cni.failureRate = 0;
    cni.hangRate = 0;
    cni.slowUntilMs = 0;
    this.#resetPolicy();
    Object.assign(apiServer, { errorRate: 0, downUntilMs: 0, isBehind: false, skipsStates: false });
    for (const { process } of this.instances) process.killAfter(Number.POSITIVE_INFINITY);
  }

  #inBackground(work: Promise<void>): void {
    work.catch((error: unknown) => this.onSurprise(error));
  }
}

function ofDifferentPfs(vfs: readonly SimVf[]): SimVf[] {
  return [...Map.groupBy(vfs, ({ pf }) => pf).values()].flatMap(([first]) => first ?? []);
}

function devicesHeldBy({ devices }: Pick<SimClaim, 'devices'>): string[] {
  return devices.flatMap(({ device, adminAccess }) => (adminAccess ? [] : [device]));
}

function simulatorTrace(node: Node, what: string | (() => string)): void {
  node.simulator.trace('node', what);
}
