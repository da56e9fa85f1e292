import { join } from 'node:path';
import { allCni, Driver } from '../../src/driver/claims/index.ts';
import {
  endEarlierBoots,
  InactiveClaims,
  ObservedVfs,
  OrphanedFiles,
  Reconciler,
  UnrestoredVfs,
} from '../../src/driver/recovery/index.ts';
import {
  Attachments,
  CniAttacher,
  CniCleanUp,
  createSandboxSide,
  type SandboxSide,
} from '../../src/driver/sandbox/index.ts';
import { ClaimLocks, Store, type StoreOptions } from '../../src/driver/state/index.ts';
import { CallQueue } from '../../src/framework/kubeletplugin/call-queue.ts';
import { FileLock } from '../../src/framework/kubeletplugin/file-lock.ts';
import { type MetadataFiles, PluginCalls } from '../../src/framework/kubeletplugin/plugin-calls.ts';
import { shareMetadataFiles } from '../../src/framework/kubeletplugin/shared-metadata-files.ts';
import { CdiSpecs, ClaimMetadata, type DeviceAttributes, layouts } from '../../src/framework/metadata/index.ts';
import type { Logger } from '../../src/lib/logger.ts';
import { HostLinks, VfHardware } from '../../src/node/sriov/index.ts';
import { driverName, nodeName } from './api-server.ts';
import { linkKey, SimBinding, SimDeviceNodes } from './hardware.ts';
import { SimNetworks } from './networks.ts';
import { Process, SimulatedClock } from './simulator.ts';
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

export const reconcileMs = 10_000;
/** Periodic sleeps of the driver: reconciliation, and checks of pods and waiting sandboxes. */
export const periodicSleepsMs = [reconcileMs, 2_000, 1_000];
const lockPollMs = 100;

/** One instance of the driver: the composition of `src/app/app.ts`, on the simulated node. */
export class Instance {
  readonly process: Process;
  readonly calls: PluginCalls;
  readonly side: SandboxSide;
  readonly store: Store;
  readonly metadata: ClaimMetadata;
  readonly clock: SimulatedClock;
  readonly #reconciler: Reconciler;
  readonly #cniCleanUp: CniCleanUp;
  readonly #endBoots: () => Promise<unknown>;
  isStarted = false;

  constructor(node: Node, name: string, isShared: boolean) {
    const { simulator, kernel, hardware } = node;
    const process = new Process(simulator, name);
    const clock = new SimulatedClock(simulator, process);
    const logger = loggerOf(node, process);
    const driver = driverName;
    const { dataDir, cdiDir, stateDir, database } = directoriesOf(node.directories);
    this.process = process;
    this.clock = clock;
    const bootId = `boot-${node.bootCount}`;

    const open: StoreOptions['open'] = (path, options) => node.databases.open(path, options);
    const store = openStore(node, process, database, { bootId, open });
    this.store = store;
    process.onEnd(() => store[Symbol.dispose]());
    const attributesOf = (): DeviceAttributes => ({ kind: { string: 'vf' } });
    const metadata = new ClaimMetadata({
      driver,
      dataDir,
      cdiDir,
      attributesDir: join(dataDir, 'attributes'),
      downwardApiDir: join(dataDir, 'pods'),
      layouts: [layouts.v1],
      gate: { program: '/opt/netdra/netdra-gate', timeoutSeconds: 100 },
      attributesOf,
      bootId,
      onPending: ({ uid }) => this.side?.registry.requeuePods(store.claim(uid)?.podUids ?? []),
      now: () => new Date(simulator.nowMs),
    });
    this.metadata = metadata;

    const system = {
      simulator,
      kernel,
      hardware,
      process,
      isLost: () => simulator.tape.chance(node.faults.lostRate, 'kernel'),
    };
    const networks = new SimNetworks(system);
    const host = networks.host.connection;
    const binding = new SimBinding(hardware, process, simulator);
    const control = new VfHardware({ binding, host, clock, nodes: new SimDeviceNodes(hardware) });
    const links = new HostLinks({ binding, host, clock });
    const vfs = {
      linkKey,
      adminInfo: control.info.bind(control),
      ensureLink: links.ensure.bind(links),
      isUnbound: links.isUnbound.bind(links),
      recreate: async (pciAddress: string) => void (await links.recreate(pciAddress)),
    };
    const lockClock = { ...clockFunctions(clock), sleep: (_ms: number) => clock.sleep(lockPollMs) };
    const locks = new ClaimLocks(join(stateDir, 'claims.lock'), lockClock);
    process.onEnd(() => locks[Symbol.dispose]());
    const runner = node.cni.plugins(process);
    const cni = new CniAttacher({ runner, clock, logger });
    this.#cniCleanUp = new CniCleanUp({ runner, store, clock, logger });
    const attachments = new Attachments({ networks, vfs, cni, store, clock });
    const deviceSpecs = new CdiSpecs({ dir: cdiDir, driver, class: 'device' });
    const metadataSpecs = new CdiSpecs({ dir: cdiDir, driver, class: 'metadata' });
    const claims = node.apiServer.reader(process);
    const networkDriver = new Driver({
      driver,
      store,
      inventory: {
        pool: nodeName,
        find: (device) => {
          const vf = hardware.vfs.find((each) => each.name === device);
          return vf && { ...addressOf(vf), simulated: false };
        },
      },
      attachments,
      control,
      attributesOf,
      deviceSpecs,
      dialectFiles: { write: async () => new Map(), removeClaim: async () => undefined },
      networkAttachments: { readNetworkAttachment: async () => ({}) },
      openClaimFields: [],
      cni: allCni,
      allocations: { check: async () => undefined },
      namespaces: { readLabels: async () => ({}) },
      nodeNetworks: async () => [],
      locks,
      logger,
    });
    const lockOf = (file: string) => {
      if (!isShared) return undefined;
      const lock = new HeldFileLock(join(dataDir, file), lockClock);
      process.onEnd(() => lock.breakFree());
      return lock;
    };
    const filesLock = lockOf('files.lock');
    const files: MetadataFiles = filesLock === undefined ? metadata : shareMetadataFiles(metadata, filesLock, clock);
    const queue = new CallQueue(lockOf('calls.lock'));
    const calls = new PluginCalls(networkDriver, {
      driver,
      claims,
      metadata: files,
      queue,
      serialize: false,
      clock,
      logger,
    });
    this.calls = calls;
    this.side = createSandboxSide({
      driver,
      store,
      metadata,
      locks,
      attachments,
      networks,
      files: {
        updateRequestMetadata: (claim, request, devices) => files.update(claim, request, devices),
        withdrawMetadata: (claim, requests) => files.withdraw(claim, requests),
        openGate: (claim, sandboxId) => files.openGate(claim, sandboxId),
        holdGate: (claim, sandboxId, reason) => files.holdGate(claim, sandboxId, reason),
        endGate: (claim, sandboxId) => files.endGate(claim, sandboxId),
      },
      attributesOf,
      assure: (claim, device) => networkDriver.assure(claim, device),
      isWanted: ({ uid }, signal) => node.apiServer.isPodWanted(process, uid, signal),
      isFilePlace: (path) => metadata.isFilePlace(path),
      isFileOf: (claim, path) => metadata.isFileOf(claim, path),
      isGateOf: (claim, args) => metadata.isGateOf(claim, args),
      runsHooks: () => true,
      liveUpdates: node.plan.liveUpdates,
      onFailure: () => undefined,
      onFlapping: () => undefined,
      onSynchronized: () => this.#reconciler.nudge(),
      onOtherPod: () => this.#reconciler.nudge(),
      clock,
      logger,
    });
    const { registry } = this.side;
    const inactive = new InactiveClaims({
      driver,
      pool: nodeName,
      store,
      sandboxes: registry,
      claims,
      metadata,
      helper: calls,
      onHandedOver: () => this.#reconciler.nudge(),
      clock,
      logger,
    });
    const orphans = new OrphanedFiles({
      store,
      metadata,
      specs: [deviceSpecs, metadataSpecs],
      helper: calls,
      logger,
    });
    const unrestored = new UnrestoredVfs({ store, attachments, control, locks, logger });
    const observed = new ObservedVfs({ store, sandboxes: registry, attachments, locks, clock, logger });
    this.#reconciler = new Reconciler({
      tasks: [
        { name: 'sandboxes', run: async () => registry.requeueAll() },
        { name: 'VFs to restore', run: (signal) => unrestored.sweep(signal) },
        { name: 'observed VFs', run: (signal) => observed.sweep(signal) },
        { name: 'claims', run: (signal) => inactive.sweep(signal) },
        { name: 'files', run: (signal) => orphans.sweep(signal) },
        { name: 'CNI attachments', run: (signal) => this.#cniCleanUp.sweep(signal) },
      ],
      everyMs: reconcileMs,
      clock,
      logger,
    });
    this.#endBoots = () => endEarlierBoots({ store, withdraw: (claim) => metadata.withdraw(claim), logger });
  }

  async start(): Promise<void> {
    await this.#endBoots();
    this.isStarted = true;
    await this.side.waitingSandboxes.serve();
    this.side.waitingSandboxes.start();
    this.#cniCleanUp.start();
    this.#reconciler.start();
    this.side.deletedPods.start();
  }

  /** As on SIGTERM. */
  async stop(): Promise<void> {
    this.isStarted = false;
    await this.#reconciler[Symbol.asyncDispose]();
    await this.side.registry[Symbol.asyncDispose]();
    await this.side.deletedPods[Symbol.asyncDispose]();
    await this.side.waitingSandboxes[Symbol.asyncDispose]();
    await this.#cniCleanUp[Symbol.asyncDispose]();
  }
}

function addressOf({ pciAddress, vfIndex }: { pciAddress: string; vfIndex: number }) {
  return { pciAddress, pfAddress: '0000:01:00.0', vfIndex };
}

function clockFunctions(clock: SimulatedClock) {
  return {
    nowMs: () => clock.nowMs(),
    deadline: (timeoutMs: number, parent?: AbortSignal) => clock.deadline(timeoutMs, parent),
  };
}

/** A file lock that the end of its process releases. */
class HeldFileLock extends FileLock {
  readonly #held = new Set<Disposable>();

  override async acquire(signal: AbortSignal): Promise<Disposable> {
    const lock = await super.acquire(signal);
    this.#held.add(lock);
    return {
      [Symbol.dispose]: () => {
        if (this.#held.delete(lock)) lock[Symbol.dispose]();
      },
    };
  }

  breakFree(): void {
    for (const lock of this.#held) lock[Symbol.dispose]();
    this.#held.clear();
    this[Symbol.dispose]();
  }
}

const storeChanges = ['putClaim', 'setState', 'setAttachments', 'putUnrestored', 'deleteUnrestored', 'deleteClaim'];
const storeReads = ['claim', 'claims', 'claimsOfPod', 'holderOf', 'unrestored', 'claimsOfEarlierBoots'];

/** A store with kill points before and after each of its changes, which may also fail. */
function openStore(node: Node, process: Process, path: string, options: StoreOptions): Store {
  const store = new Store(path, options);
  const methods = store as unknown as Record<string, (...args: unknown[]) => unknown>;
  for (const name of storeChanges) {
    const original = methods[name]!.bind(store);
    methods[name] = (...args) => {
      process.point(`store ${name}`);
      node.failStore();
      node.simulator.trace(process.name, () => `store ${name} ${JSON.stringify(args.map(summary))}`);
      const result = original(...args);
      node.onStored();
      process.point(`after store ${name}`);
      return result;
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
  const write = (level: string) => (fields: object, message: string) => {
    if (level === 'warn' && 'sandbox' in fields && 'retryMs' in fields) checks.failedIn(String(fields.sandbox));
    if (simulator.lines === undefined) return;
    const { err, ...rest } = fields as { err?: unknown };
    const error = err === undefined ? '' : `: ${err instanceof Error ? `${err.message}${causeOf(err)}` : err}`;
    simulator.trace(name, `${level} ${message} ${JSON.stringify(rest)}${error}`);
  };
  return { debug: () => undefined, info: write('info'), warn: write('warn'), error: write('error') };
}

function causeOf({ cause }: Error): string {
  return cause instanceof Error ? `: ${cause.message}${causeOf(cause)}` : '';
}
