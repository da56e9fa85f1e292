import { existsSync, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseGate } from '../../src/framework/metadata/gate/gate.ts';
import { KeyedMutex } from '../../src/lib/keyed-mutex.ts';
import { readCdi } from '../doubles/cdi.ts';
import { namespace as podNamespace } from './api-server.ts';
import { directoriesOf, type Instance } from './instance.ts';
import type { Namespace } from './links.ts';
import { Cancelled, rpc, TimedOut, Unavailable } from './rpc.ts';
import { type SimContainer, type SimSandbox, viewOf, viewOfContainer } from './sandboxes.ts';
import { Process } from './simulator.ts';
import type { Node, SimPod } from './world.ts';

/** A container at the start gate of a claim. */
export interface GateWait {
  claimDir: string;
  forMs: number;
  /** The last one that the gate has given. */
  reason: string | undefined;
}

interface Connection {
  instance: Instance;
  isOpen: boolean;
}

const nriTimeoutMs = 2_000;
const runtimeInfo = {
  name: 'simulated',
  version: '1',
  nriVersion: '1',
  registrationTimeoutMs: 5_000,
  requestTimeoutMs: nriTimeoutMs,
};
const stateTimeoutMs = 2_000;
const gatePollMs = 500;
const gateTimeoutMs = 100_000;

/** The container runtime: its sandboxes and containers outlive its process. */
export class Runtime {
  readonly sandboxes = new Map<string, SimSandbox>();
  readonly containers = new Map<string, SimContainer>();
  process: Process;
  readonly #node: Node;
  #connections: Connection[] = [];
  #nri = new KeyedMutex();
  #count = 0;

  constructor(node: Node) {
    this.#node = node;
    this.process = new Process(node.simulator, 'runtime');
  }

  /** The sandboxes that the kubelet sees. */
  list(): SimSandbox[] {
    return [...this.sandboxes.values()].filter(({ state }) => state === 'ready' || state === 'stopped');
  }

  containersOf(sandbox: SimSandbox): SimContainer[] {
    return [...this.containers.values()].filter((container) => container.sandbox === sandbox);
  }

  isConnected(instance: Instance): boolean {
    return this.#connections.some((connection) => connection.instance === instance && connection.isOpen);
  }

  /** A plugin registers: it receives the current state, and then every event. */
  async connect(instance: Instance): Promise<void> {
    const connection = { instance, isOpen: true };
    // containerd first requests the state of each sandbox and container, and one whose hook runs does not answer.
    for (const container of this.containers.values()) {
      if (this.#node.plan.flavour === 'containerd' && container.state === 'created' && container.isAtGate)
        await this.process.sleep(stateTimeoutMs);
    }
    await this.#nri.run('plugins', async () => {
      const pods = [...this.sandboxes.values()].filter(({ isListed }) => isListed);
      const containers = [...this.containers.values()].filter(({ state }) => state !== 'exited');
      await this.#tell(connection, 'Synchronize', () =>
        instance.handlers.synchronize?.(pods.map(viewOf), containers.map(viewOfContainer), {
          signal: new AbortController().signal,
        }),
      );
      if (!connection.isOpen) return;
      instance.handlers.connected?.(runtimeInfo);
      instance.process.onEnd(() => this.#close(connection));
      this.#connections.push(connection);
    });
  }

  async runPodSandbox(pod: SimPod, signal: AbortSignal): Promise<string> {
    const { kernel, simulator, plan } = this.#node;
    const { tape } = simulator;
    const number = ++this.#count;
    const id = `${pod.uid}-sandbox-${number}`;
    const { isOnHost } = pod.plan;
    const mount = {};
    const path = isOnHost ? '' : `/var/run/netns/cni-${number}`;
    const network = isOnHost ? kernel.host : kernel.createNamespace(id, mount);
    if (!isOnHost) kernel.mounts.set(path, network);
    const sandbox: SimSandbox = {
      id,
      pod,
      path,
      network,
      mount,
      pause: undefined,
      state: 'making',
      isListed: plan.listsUnfinished,
      toldTo: new Set(),
      isEnding: false,
      isNetnsLost: false,
      endedAtMs: undefined,
      ownNamespace: undefined,
    };
    this.sandboxes.set(id, sandbox);
    const hardwareAddress = `0a:58:0a:00:00:0${number % 10}`;
    if (!isOnHost) kernel.addLink(network, { name: 'eth0', hardwareAddress, kind: 'veth', up: true });
    try {
      await this.#work('cluster network', 20, 3_000, signal);
      this.#startPause(sandbox);
      await this.#event(`RunPodSandbox ${id}`, (instance, context) => {
        sandbox.toldTo.add(instance);
        return instance.handlers.runPodSandbox?.(viewOf(sandbox), context);
      });
      await this.#work('task', 5, 500, signal);
      if (plan.slowStartMs !== undefined) await this.#work('slow task', plan.slowStartMs, plan.slowStartMs, signal);
    } catch (error) {
      simulator.trace('runtime', `RunPodSandbox ${id} fails: ${(error as Error).message}`);
      const isLeaked = tape.chance(plan.leakRate);
      this.#unmount(sandbox);
      sandbox.state = 'failed';
      if (isLeaked) simulator.trace('runtime', `leaks the pause process of ${id}`);
      else this.#endPause(sandbox);
      sandbox.isListed = isLeaked && tape.chance(0.3) && this.#mayBeUnknown(sandbox);
      await this.#event(`RemovePodSandbox ${id}`, (instance, context) =>
        instance.handlers.removePodSandbox?.(viewOf(sandbox), context),
      ).catch(() => undefined);
      if (!isLeaked) this.sandboxes.delete(id);
      throw error;
    }
    sandbox.state = 'ready';
    sandbox.isListed = true;
    return id;
  }

  async createContainer(sandboxId: string, cdiDevices: string[], signal: AbortSignal): Promise<string> {
    const sandbox = this.#ready(sandboxId);
    const edits = readCdi(directoriesOf(this.#node.directories).cdiDir, cdiDevices);
    const container: SimContainer = {
      id: `container-${++this.#count}`,
      sandbox,
      state: 'created',
      reason: undefined,
      startError: undefined,
      isAtGate: false,
      cdiDevices,
      edits,
      mounts: new Map(),
      startedAtMs: 0,
      isApproved: false,
    };
    await this.#work('snapshot', 5, 500, signal);
    container.isApproved = await this.#event(`CreateContainer in ${sandboxId}`, (instance, context) =>
      instance.handlers.createContainer?.(viewOf(sandbox), viewOfContainer(container), context),
    );
    this.#ready(sandboxId);
    // CRI-O runs hooks here: if they fail, the kubelet retries.
    this.containers.set(container.id, container);
    try {
      if (this.#node.plan.flavour === 'cri-o') await this.#runGates(container, signal);
    } catch (error) {
      this.containers.delete(container.id);
      throw error;
    }
    return container.id;
  }

  async startContainer(id: string, signal: AbortSignal): Promise<void> {
    const container = this.containers.get(id);
    if (container?.state !== 'created') throw new Error(`there is no container ${id} to start`);
    try {
      if (this.#node.plan.flavour === 'containerd') await this.#runGates(container, signal);
      this.#ready(container.sandbox.id);
      if (container.state !== 'created') throw new Error(`container ${id} was killed`);
    } catch (error) {
      container.state = 'exited';
      container.reason ??= error instanceof Cancelled ? 'killed' : 'start-error';
      container.startError = (error as Error).message;
      this.#node.simulator.trace('runtime', `StartContainer ${id} fails: ${(error as Error).message}`);
      throw error;
    }
    container.state = 'running';
    container.startedAtMs = this.#node.simulator.nowMs;
    this.#node.simulator.trace('runtime', `container ${id} of ${container.sandbox.id} runs`);
    this.#node.onContainerRuns(container);
  }

  /** Includes one that waits at the gate. */
  stopContainer(container: SimContainer, reason: 'exit' | 'killed'): void {
    if (container.state === 'exited') return;
    container.state = 'exited';
    container.reason = reason;
  }

  async stopPodSandbox(id: string, signal: AbortSignal): Promise<void> {
    const sandbox = this.sandboxes.get(id);
    if (sandbox === undefined) return;
    sandbox.isEnding = true;
    this.#ends(sandbox);
    for (const container of this.containersOf(sandbox)) this.stopContainer(container, 'killed');
    await this.#work('kill', 10, 1_000, signal);
    this.#endPause(sandbox);
    const isPathFirst = this.#node.plan.flavour === 'cri-o';
    if (isPathFirst) this.#unmount(sandbox);
    const toldAtMs = this.#node.simulator.nowMs;
    const isAnswered = await this.#event(`StopPodSandbox ${id}`, (instance, context) =>
      instance.handlers.stopPodSandbox?.(viewOf(sandbox), context),
    );
    if (isAnswered) this.#node.checks.stopAnswered(sandbox, this.#node.simulator.nowMs - toldAtMs);
    sandbox.state = 'stopped';
    sandbox.isListed = this.#node.plan.listsStopped;
    await this.#work('cluster network', 10, 1_000, signal);
    this.#moveObserved(sandbox, this.#node.kernel.host);
    this.#unmount(sandbox);
  }

  async removePodSandbox(id: string, signal: AbortSignal): Promise<void> {
    const sandbox = this.sandboxes.get(id);
    if (sandbox === undefined) return;
    if (sandbox.state !== 'stopped') await this.stopPodSandbox(id, signal);
    await this.#event(`RemovePodSandbox ${id}`, (instance, context) =>
      instance.handlers.removePodSandbox?.(viewOf(sandbox), context),
    );
    this.#unmount(sandbox);
    this.#forget(sandbox);
  }

  /** The pause process of a sandbox is killed, and its containers with it. */
  loseSandbox(sandbox: SimSandbox): void {
    this.#node.simulator.trace('node', `the pause process of ${sandbox.id} is killed`);
    for (const container of this.containersOf(sandbox)) this.stopContainer(container, 'killed');
    this.#endPause(sandbox);
    sandbox.state = 'stopped';
    this.#ends(sandbox);
  }

  #ends(sandbox: SimSandbox): void {
    if (sandbox.endedAtMs !== undefined) return;
    sandbox.endedAtMs = this.#node.simulator.nowMs;
    this.#node.checks.sandboxEnds(sandbox);
  }

  /** Its work is interrupted; sandboxes and containers live on. */
  restart(afterMs: number): void {
    const { simulator } = this.#node;
    const { tape } = simulator;
    const connections = this.#connections;
    this.process.kill();
    this.#connections = [];
    this.#nri = new KeyedMutex();
    for (const connection of connections) this.#close(connection);
    for (const container of this.containers.values()) {
      if (container.state !== 'created') continue;
      container.state = 'exited';
      container.reason = 'start-error';
    }
    for (const sandbox of [...this.sandboxes.values()]) {
      if (sandbox.state !== 'making') continue;
      if (this.#node.plan.losesNamespaces) {
        // Killed after the pause process was started, but before that was recorded.
        if (sandbox.pause === undefined) this.#startPause(sandbox);
        sandbox.state = 'ready';
        sandbox.isListed = true;
        sandbox.isNetnsLost = true;
        continue;
      }
      // The kubelet knows it as stopped, or not at all.
      sandbox.state = tape.chance(0.5) ? 'failed' : 'stopped';
      sandbox.isListed = tape.chance(0.5) && (sandbox.state === 'stopped' || this.#mayBeUnknown(sandbox));
      if (tape.chance(0.5)) this.#unmount(sandbox);
    }
    this.process = new Process(simulator, 'runtime');
    this.process.stalledUntilMs = simulator.nowMs + afterMs;
  }

  /**
   * Whether the sandbox may be reported to plugins but not to the kubelet. Real runtimes give both the same
   * list. With a VF that another component has moved, only the kubelet can have it moved back.
   */
  #mayBeUnknown({ pod }: SimSandbox): boolean {
    return !pod.claims.some((name) => this.#node.apiServer.claims.get(name)?.plan.attach === 'observe');
  }

  /** Multus moves the VFs of claims with `attach: observe`. */
  #moveObserved(sandbox: SimSandbox, target: Namespace): void {
    const { hardware, kernel, apiServer } = this.#node;
    const { uid, claims: claimNames } = sandbox.pod;
    const claims = claimNames.flatMap((name) => apiServer.claims.get(name) ?? []);
    // It finds devices by the UID of the pod: those of a later claim of the same name belong to another one.
    const own = target.isHost ? claims : claims.filter(({ reservedFor }) => reservedFor.includes(uid));
    const names = own.flatMap(({ plan, devices }) =>
      plan.attach === 'observe' && !plan.adminAccess ? devices.map(({ device }) => device) : [],
    );
    for (const { name, link, fresh } of hardware.vfs) {
      if (link === undefined || link.namespace === target) continue;
      if (target.isHost ? link.namespace !== sandbox.network : !names.includes(name)) continue;
      if (target.isHost && !names.includes(name)) continue;
      if (!target.isHost && !link.namespace.isHost) throw new Error(`Multus: ${name} is not on the host`);
      const wanted = target.isHost ? { name: fresh.name } : {};
      // If it cannot move a VF back, the kernel does when the namespace ends.
      try {
        kernel.change(link.namespace, link.index, wanted, target, 'Multus');
      } catch (error) {
        if (!target.isHost) throw error;
      }
    }
  }

  /** The node has booted: nothing is running any more. */
  boot(afterMs: number): void {
    for (const sandbox of [...this.sandboxes.values()]) {
      for (const container of this.containersOf(sandbox)) this.stopContainer(container, 'killed');
      this.#endPause(sandbox);
      this.#unmount(sandbox);
      this.#forget(sandbox);
    }
    this.restart(afterMs);
  }

  async #runGates(container: SimContainer, signal: AbortSignal): Promise<void> {
    for (const { hostPath } of container.edits.mounts) {
      if (!existsSync(hostPath)) throw new Error(`mount source ${hostPath} does not exist`);
      container.mounts.set(hostPath, inodeOf(hostPath));
    }
    for (const { args } of container.edits.hooks) await this.#runGate(container, args, signal);
  }

  /** The behaviour of `netdra-gate`. */
  async #runGate(container: SimContainer, args: string[], signal: AbortSignal): Promise<void> {
    const claimDir = args[args.indexOf('--claim-dir') + 1] ?? '';
    const { simulator } = this.#node;
    const { sandbox } = container;
    const endsAtMs = simulator.nowMs + gateTimeoutMs;
    const inode = inodeOf(claimDir);
    const announcement = join(claimDir, `waiting.${sandbox.id}.1`);
    container.isAtGate = true;
    // Like `netdra-gate`, which fails with the last one.
    let reason: string | undefined;
    try {
      for (;;) {
        if (container.state !== 'created') throw new Error('the container has ended');
        if (signal.aborted) throw new Cancelled('the runtime has given the container up');
        const gate = parseGate(readText(join(claimDir, 'gate')) ?? '');
        if (gate?.sandboxId === sandbox.id) {
          reason = gate.reason ?? reason;
          if (gate.state === 'served') return;
          if (gate.state === 'ended') {
            const isRight = sandbox.isEnding || sandbox.state !== 'ready' || sandbox.pod.isDeleted;
            throw new Error(
              isRight ? 'the sandbox is being stopped' : 'the gate is ended, and the kubelet does not stop the sandbox',
            );
          }
        }
        if (inode === undefined || inodeOf(claimDir) !== inode) throw new Error('the claim is not prepared any more');
        if (simulator.nowMs >= endsAtMs) {
          this.#node.onGateTimeout(container);
          throw new Error('the devices of the claim were not ready in time');
        }
        this.#node.checks.waitsAtGate(container, {
          claimDir,
          reason,
          forMs: simulator.nowMs - endsAtMs + gateTimeoutMs,
        });
        announce(announcement, sandbox, this.#node.wallMs());
        await this.process.sleep(gatePollMs, 'gate');
      }
    } finally {
      container.isAtGate = false;
      rmSync(announcement, { force: true });
    }
  }

  /** @returns whether a plugin has answered in time @throws its refusal */
  async #event(
    what: string,
    send: (instance: Instance, context: { timeoutMs: number; signal: AbortSignal }) => unknown,
  ): Promise<boolean> {
    let isAnswered = false;
    await this.#nri.run('plugins', async () => {
      for (const connection of [...this.#connections]) {
        await this.#tell(connection, what, (signal) => send(connection.instance, { timeoutMs: nriTimeoutMs, signal }));
        isAnswered ||= connection.isOpen;
      }
    });
    return isAnswered;
  }

  /** A plugin that is late or gone is disconnected, and the runtime continues. @throws the plugin's refusal */
  async #tell(connection: Connection, what: string, handle: (signal: AbortSignal) => unknown) {
    const { simulator } = this.#node;
    if (!connection.isOpen) return;
    simulator.trace('runtime', `${what} to ${connection.instance.process.name}`);
    try {
      const to = connection.instance.process;
      await rpc(simulator, { from: this.process, to, what, timeoutMs: nriTimeoutMs, handle });
    } catch (error) {
      if (!(error instanceof TimedOut || error instanceof Unavailable)) throw error;
      this.#close(connection);
    }
  }

  #close(connection: Connection): void {
    if (!connection.isOpen) return;
    connection.isOpen = false;
    this.#connections = this.#connections.filter((each) => each !== connection);
    const { instance } = connection;
    this.#node.simulator.schedule(1, instance.process, 'disconnected', () => {
      instance.handlers.disconnected?.(undefined);
      this.#node.reconnect(instance);
    });
  }

  async #work(what: string, usualMs: number, slowMs: number, signal: AbortSignal): Promise<void> {
    await this.process.sleep(this.#node.simulator.tape.delay(usualMs, slowMs), what);
    if (signal.aborted) throw new Cancelled(`${what} was cancelled`);
  }

  #ready(id: string): SimSandbox {
    const sandbox = this.sandboxes.get(id);
    if (sandbox?.state === 'ready') return sandbox;
    throw new Error(`sandbox ${id} is not ready`);
  }

  #unmount(sandbox: SimSandbox): void {
    const { kernel } = this.#node;
    if (kernel.mounts.get(sandbox.path) !== sandbox.network) return;
    kernel.mounts.delete(sandbox.path);
    kernel.release(sandbox.network, sandbox.mount);
  }

  #startPause(sandbox: SimSandbox): void {
    this.#moveObserved(sandbox, sandbox.network);
    sandbox.pause = {};
    sandbox.network.references.add(sandbox.pause);
  }

  #endPause(sandbox: SimSandbox): void {
    if (sandbox.pause === undefined) return;
    this.#node.kernel.release(sandbox.network, sandbox.pause);
    if (sandbox.ownNamespace !== undefined) this.#node.kernel.release(sandbox.ownNamespace, sandbox);
    sandbox.pause = undefined;
  }

  #forget(sandbox: SimSandbox): void {
    this.sandboxes.delete(sandbox.id);
    for (const container of this.containersOf(sandbox)) this.containers.delete(container.id);
  }
}

function readText(path: string): string | undefined {
  return existsSync(path) ? readFileSync(path, 'utf8') : undefined;
}

function announce(path: string, { pod, path: netns }: SimSandbox, wallMs: number): void {
  const facts = [`podUid ${pod.uid}`, `podNamespace ${podNamespace}`, `podName ${pod.uid}`];
  writeFileSync(path, ['netdra-waiting 1', ...facts, ...(netns === '' ? [] : [`netns ${netns}`]), ''].join('\n'));
  utimesSync(path, wallMs / 1_000, wallMs / 1_000);
}

function inodeOf(path: string): number | undefined {
  return statSync(path, { throwIfNoEntry: false })?.ino;
}
