import { join } from 'node:path';
import type { PluginHandlers } from '../../nri/index.ts';
import { Readiness } from '../../src/app/ops/readiness.ts';
import { allCni } from '../../src/driver/api/cni-rules.ts';
import { createNode, type NetworkNode } from '../../src/driver/composition/create-node.ts';
import type { KubeletPort, NodeObserver, NodePorts, NodeSettings } from '../../src/driver/composition/ports.ts';
import { StateError } from '../../src/driver/model/index.ts';
import { Store, type StoreOptions } from '../../src/driver/state/index.ts';
import type { DeviceHealth } from '../../src/framework/kubeletplugin/index.ts';
import { PluginCalls } from '../../src/framework/kubeletplugin/plugin-calls.ts';
import { restoreEach } from '../../src/framework/kubeletplugin/shared-files.ts';
import { makeStateDir } from '../../src/instance/stored-claims.ts';
import { FileMutex } from '../../src/lib/file-mutex.ts';
import { KeyedMutex } from '../../src/lib/keyed-mutex.ts';
import type { Logger } from '../../src/lib/logger.ts';
import type { TextFiles } from '../../src/lib/text-files.ts';
import type { InventoryPolicy } from '../../src/node/inventory/inventory-policy.ts';
import { driverName, nodeName } from './api-server.ts';
import { openSimCard } from './card-ports.ts';
import { decoding } from './decoded.ts';
import type { SimLink } from './links.ts';
import { SimNetworks } from './networks.ts';
import { numaNodes } from './numa.ts';
import { type InstanceSettings, reconcileMsOf } from './plan.ts';
import { Process } from './simulator.ts';
import type { Node } from './world.ts';

/** The files of an instance, and of its successor. */
export interface Directories {
  root: string;
}

export function directoriesOf({ root }: Directories) {
  return {
    dataDir: join(root, 'plugins'),
    cdiDir: join(root, 'cdi'),
    stateDir: join(root, 'state'),
    database: join(root, 'state', 'state.db'),
  };
}

/** Text files in memory: a wait for the real disk takes no turn of the simulation. */
function textFiles(texts: Map<string, string>): TextFiles {
  return {
    async read(path) {
      const text = texts.get(path);
      if (text === undefined) throw Object.assign(new Error(`no file ${path}`), { code: 'ENOENT' });
      return text;
    },
    replace: (path, text) => void texts.set(path, text),
  };
}

/** Directories of an instance that only some claims have files in. */
export function settingsDirs(directories: Directories) {
  const { dataDir, stateDir } = directoriesOf(directories);
  return {
    deviceInfoDir: join(stateDir, 'device-info-of-multus'),
    attributesDir: join(dataDir, 'attributes'),
    downwardApiDir: join(dataDir, 'pods'),
  };
}

/** Periodic sleeps of the driver beside those of reconciliation: checks of pods, waiting sandboxes and devices, and of its slices. */
export const periodicSleepsMs = [2_000, 1_000, 2_000, 300_000];
const lockPollMs = 100;

/** One instance of the driver, on the simulated node: real code behind simulated ports. */
export class Instance {
  readonly process: Process;
  readonly store: Store;
  /** Where the kubelet and the runtime reach it; absent until it serves them. */
  calls: PluginCalls | undefined;
  handlers: PluginHandlers = {};
  /** Whether the kubelet knows it. */
  isStarted = false;
  /** Health of its devices, as the kubelet knows it. */
  health: readonly DeviceHealth[] = [];
  readonly readiness = new Readiness();
  /** Settings of VFs that were not as claims ask, and what became of them: `vlan restored`. */
  readonly drifts: string[] = [];
  readonly #node: Node;
  readonly #isShared: boolean;
  readonly #chosen: InstanceSettings;
  readonly #logger: Logger;
  readonly #unfinished = new Set<Promise<unknown>>();
  /** Keys of locks that it holds. */
  readonly #held = new Map<string, number>();
  #driver: NetworkNode | undefined;

  constructor(node: Node, name: string, { isShared, chosen }: { isShared: boolean; chosen: InstanceSettings }) {
    const process = new Process(node.simulator, name);
    this.#node = node;
    this.#isShared = isShared;
    this.#chosen = chosen;
    this.process = process;
    this.#logger = loggerOf(node, process);
    const open: StoreOptions['open'] = (path, options) =>
      node.databases.open(path, options, (isRead) => node.beforeStatement(isRead));
    const { stateDir, database } = directoriesOf(node.directories);
    makeStateDir(stateDir);
    this.store = openStore(node, process, database, { bootId: `boot-${node.bootCount}`, open });
    process.onEnd(() => this.store[Symbol.dispose]());
  }

  async start(): Promise<void> {
    const ports = this.#ports();
    const { plant, directories } = this.#node;
    this.#driver = await createNode(plant?.(ports, directoriesOf(directories)) ?? ports, this.#settings());
    await this.#driver.start();
  }

  /** Whether it holds the lock of a claim. */
  holds(key: string): boolean {
    return this.#held.has(key);
  }

  /** As on SIGTERM. */
  async stop(): Promise<void> {
    await this.#driver?.[Symbol.asyncDispose]();
  }

  /** A call of the kubelet, which a stop waits for. */
  async call<T>(send: (calls: PluginCalls) => Promise<T>): Promise<T> {
    if (this.calls === undefined) throw new Error('the driver does not listen yet');
    const answer = send(this.calls);
    const settled = answer.catch(() => undefined).finally(() => this.#unfinished.delete(settled));
    this.#unfinished.add(settled);
    return await answer;
  }

  #settings(): NodeSettings {
    const { dataDir, cdiDir, stateDir } = directoriesOf(this.#node.directories);
    return {
      driverName,
      nodeName,
      dataDir,
      cdiDir,
      stateDir,
      ...settingsDirs(this.#node.directories),
      metadataLayouts: this.#chosen.layouts,
      metadataVersions: ['v1beta1', 'v1alpha1'],
      enableDeviceMetadata: this.#chosen.metadata,
      vfTraffic: false,
      liveUpdates: this.#node.plan.liveUpdates,
      openClaimFields: [],
      listAttributes: false,
      nodeView: true,
      // Where the policy comes from is a port here.
      policyObjects: false,
      version: '0.1.0',
      cni: allCni,
      reconcileIntervalMs: reconcileMsOf(this.#node.plan),
      simulate: undefined,
      simulatePrefix: '',
    };
  }

  #ports(): NodePorts {
    const { simulator, kernel, hardware, apiServer, cni, bootCount } = this.#node;
    const { process } = this;
    const readFails = () => this.#node.readFails('files');
    const isLost = (isChange: boolean, link?: SimLink) => this.#node.isRequestLost(isChange, link);
    const networks = new SimNetworks({ simulator, kernel, hardware, process, isLost, readFails });
    const locks = this.#contested(this.#isShared ? this.#sharedLocks() : new KeyedMutex());
    const isGated = this.#chosen.gate === 'hook';
    const gate = {
      ...(isGated ? { hook: { program: '/opt/netdra/netdra-gate', timeoutSeconds: 100 } } : {}),
      runsHooks: () => isGated,
    };
    return {
      clock: this.process.clock,
      now: () => new Date(this.#node.wallMs()),
      logger: this.#logger,
      random: () => 0,
      kernel: {
        networks,
        numaNodes: () => numaNodes,
        watchHost: (onChange) => networks.host.watch(onChange),
        openCard: () => openSimCard(hardware, process, simulator, () => this.#node.readFails('card')),
        policy: this.#policyFile(),
      },
      disk: { bootId: `boot-${bootCount}`, store: this.store, files: textFiles(this.#node.disk.texts), locks, gate },
      kube: apiServer.client(process),
      kubelet: { serve: async (plugin, options) => this.#serve(plugin, options) },
      runtime: {
        connect: (handlers, decode) => {
          this.handlers = decoding(handlers, decode);
          return {
            start: () => void simulator.schedule(5, process, 'connect', () => this.#node.connectToRuntime(this)),
            whenConnected: () => new Promise(() => undefined),
            [Symbol.asyncDispose]: async () => undefined,
          };
        },
      },
      cni: cni.plugins(process),
      observer: this.#observer(),
    };
  }

  /** Who gets a lock may wait as if another process had it. */
  #contested(locks: KeyedMutex): KeyedMutex {
    const { simulator, faults } = this.#node;
    const acquireAll = locks.acquireAll.bind(locks);
    locks.acquireAll = async (keys, signal) => {
      using turn = new DisposableStack();
      const { tape } = simulator;
      const isLate = tape.chance(faults.lockedRate, 'lock');
      const wait = () => this.process.clock.sleep(tape.delay(300, 5_000), signal);
      // Others of this process may come first, or wait as well.
      const isOvertaken = isLate && tape.chance(0.5, 'turn');
      if (isOvertaken) await wait();
      turn.use(await acquireAll(keys, signal));
      turn.use(this.#hold(keys));
      if (isLate && !isOvertaken) await wait();
      return turn.move();
    };
    return locks;
  }

  #hold(keys: readonly string[]): Disposable {
    const held = this.#held;
    for (const key of keys) held.set(key, 1 + (held.get(key) ?? 0));
    return {
      [Symbol.dispose]() {
        for (const key of keys) {
          const left = (held.get(key) ?? 1) - 1;
          if (left === 0) held.delete(key);
          else held.set(key, left);
        }
      },
    };
  }

  #sharedLocks(): FileMutex {
    const { files } = this.#node.disk;
    const until = async (_: number, isMet: () => boolean, signal?: AbortSignal) => {
      while (!isMet()) await this.process.clock.sleep(lockPollMs, signal);
    };
    const path = join(files.root, 'claims.lock');
    const locks = new FileMutex(path, { until }, StateError, (descriptor, byte) => {
      const isLocked = files.lockByte(descriptor, byte);
      if (!isLocked) this.#node.onLockTaken(this.process);
      return isLocked;
    });
    this.process.onEnd(() => locks[Symbol.dispose]());
    return locks;
  }

  /** The kubelet plugin helper without its sockets. */
  #serve(...[plugin, { metadata: files, claims, locks, onRegistration }]: Parameters<KubeletPort['serve']>) {
    const [clock, logger, driver] = [this.process.clock, this.#logger, driverName];
    const calls = new PluginCalls(plugin, { driver, claims, metadata: files, locks, clock, logger });
    this.calls = calls;
    this.#node.simulator.schedule(5, this.process, 'registered', () => {
      this.isStarted = true;
      onRegistration?.({ registered: true });
    });
    return {
      setHealth: (health: readonly DeviceHealth[]) => {
        this.health = health;
      },
      reclaim: calls.reclaim.bind(calls),
      prepareAgain: calls.prepareAgain.bind(calls),
      updateRequestMetadata: files.update.bind(files),
      restoreMetadata: () => restoreEach(files, locks, clock),
      withdrawMetadata: files.withdraw.bind(files),
      openGate: files.openGate.bind(files),
      holdGate: files.holdGate.bind(files),
      endGate: files.endGate.bind(files),
      [Symbol.asyncDispose]: async () => {
        this.isStarted = false;
        await Promise.all(this.#unfinished);
      },
    };
  }

  /** Without its text. */
  #policyFile(): NonNullable<NodePorts['kernel']['policy']> {
    let known: InventoryPolicy | undefined;
    return {
      follow: async (onChange) => {
        const { policy } = this.#node;
        if (policy !== known) onChange(policy);
        known = policy;
        return undefined;
      },
    };
  }

  #observer(): NodeObserver {
    const state = (failure?: string) =>
      failure === undefined ? ({ ok: true } as const) : { ok: false, reason: failure };
    return {
      plugin: (plugin) => plugin,
      files: (files) => files,
      handlers: (handlers) => handlers,
      connected: (peer, failure) => this.readiness.set(peer, state(failure)),
      published: (failure) => this.readiness.set('slices', state(failure)),
      metadataFailed: () => undefined,
      writeFailed: () => undefined,
      waited: () => undefined,
      attachFailed: () => undefined,
      numaCompared: () => undefined,
      drifted: (setting, result) => void this.drifts.push(`${setting} ${result}`),
      reported: () => undefined,
      started: () => undefined,
    };
  }
}

const storeChanges = [
  'putClaim',
  'setState',
  'setAttachments',
  'putUnrestored',
  'deleteUnrestored',
  'deleteClaim',
  'putCondition',
  'deleteCondition',
];
const recordChanges = ['write', 'delete'];
const storeReads = ['claim', 'claims', 'claimsOfPod', 'holderOf', 'unrestored', 'claimsOfEarlierBoots'];

type Methods = Record<string, (...args: unknown[]) => unknown>;

/** A store with kill points before and after each of its changes. */
function openStore(node: Node, process: Process, path: string, options: StoreOptions): Store {
  const store = new Store(path, options);
  const methods = store as unknown as Methods;
  for (const name of storeChanges) {
    const original = methods[name]!.bind(store);
    methods[name] = (...args) => {
      process.point(`store ${name}`);
      node.simulator.trace(process.name, () => `store ${name} ${JSON.stringify(args.map(summary))}`);
      node.beforeStored(name, args, process);
      const result = original(...args);
      node.onStored(name, args[0], process);
      process.point(`after store ${name}`);
      return result;
    };
  }
  const records = store.records as unknown as Methods;
  for (const name of recordChanges) {
    const original = records[name]!.bind(records);
    records[name] = (...args) => {
      process.point(`${name} record`);
      original(...args);
      process.point(`after ${name} record`);
    };
  }
  for (const name of storeReads) {
    const original = methods[name]!.bind(store);
    methods[name] = (...args) => {
      if (!process.isAlive) process.point(name);
      return original(...args);
    };
  }
  return store;
}

function summary(value: unknown): unknown {
  if (value instanceof Map) {
    return [...value].map(([key, attachment]) => [
      key,
      (attachment as { sandboxId?: string } | undefined)?.sandboxId ?? 'none',
    ]);
  }
  if (typeof value === 'object' && value !== null && 'identity' in value) {
    const { identity, state, podUids } = value as { identity: { uid: string }; state: string; podUids: string[] };
    return [identity.uid, state, podUids];
  }
  return typeof value === 'object' ? '…' : value;
}

function loggerOf({ simulator, checks }: Node, { name }: Process): Logger {
  // The same failure is a warning once only.
  const note = (fields: object) => {
    if ('sandbox' in fields && 'retryMs' in fields) checks.failedIn(String(fields.sandbox));
  };
  const write = (level: string) => (fields: object, message: string) => {
    note(fields);
    if (simulator.lines === undefined) return;
    const { err, ...rest } = fields as { err?: unknown };
    const error = err === undefined ? '' : `: ${err instanceof Error ? `${err.message}${causeOf(err)}` : err}`;
    simulator.trace(name, `${level} ${message} ${JSON.stringify(rest)}${error}`);
  };
  return { debug: note, info: write('info'), warn: write('warn'), error: write('error') };
}

function causeOf({ cause }: Error): string {
  return cause instanceof Error ? `: ${cause.message}${causeOf(cause)}` : '';
}
