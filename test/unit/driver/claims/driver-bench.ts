import { join } from 'node:path';
import { allCni, type CniRules } from '../../../../src/driver/api/cni-rules.ts';
import { Driver, type NetworkAttachmentReader } from '../../../../src/driver/claims/index.ts';
import type { PoolAddressesOptions } from '../../../../src/driver/claims/pool-addresses.ts';
import { DialectFiles } from '../../../../src/driver/dialects/index.ts';
import type { StoredDevice } from '../../../../src/driver/model/index.ts';
import { restoreVfs } from '../../../../src/driver/recovery/index.ts';
import { Store } from '../../../../src/driver/state/index.ts';
import type { VfControl } from '../../../../src/driver/vf/index.ts';
import type { AllocatedClaim, PrepareResult } from '../../../../src/framework/kubeletplugin/index.ts';
import type { ClaimIdentity } from '../../../../src/framework/metadata/index.ts';
import { CdiSpecs } from '../../../../src/framework/metadata/index.ts';
import { Batch } from '../../../../src/lib/batch.ts';
import { defined } from '../../../../src/lib/defined.ts';
import { KeyedMutex, type Locks } from '../../../../src/lib/keyed-mutex.ts';
import { judgeAll, type NetworkDevice } from '../../../../src/node/inventory/index.ts';
import { parseCidr } from '../../../../src/node/netlink/index.ts';
import type {
  AccessWanted,
  RestoreOptions,
  SnapshotOptions,
  VfAccess,
  VfAddress,
  VfSnapshot,
  VfWanted,
} from '../../../../src/node/sriov/index.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';
import { ManualClock } from '../../../doubles/manual-clock.ts';
import { buildClaim, buildPod, type ClaimOptions, testDriver, testNode } from '../../../doubles/objects.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';

/** A claim as the framework hands it to the driver; each has a pod of its own unless `more` names others. */
export function allocated(name: string, devices: string[], more: Partial<ClaimOptions> = {}): AllocatedClaim {
  const options = { requests: [{ name: 'vf', devices }], pods: [buildPod(`${name}-pod`)], ...more };
  const object = buildClaim(name, options);
  const { namespace, uid } = object.metadata;
  const results = object.status?.allocation?.devices?.results ?? [];
  const podUids = options.pods.map((pod) => pod.metadata.uid);
  return { identity: { namespace, name, uid }, podClaimName: undefined, results, podUids, object };
}

const config = (source: 'FromClass' | 'FromClaim', fields: object, requests: string[] = []) => ({
  source,
  requests,
  parameters: { apiVersion: 'netdra.dev/v1alpha1', kind: 'VFConfig', ...fields },
});
export const fromClass = (fields: object, requests?: string[]) => config('FromClass', fields, requests);
export const fromClaim = (fields: object, requests?: string[]) => config('FromClaim', fields, requests);

/** VFs that take every configuration, and a record of the calls on them. */
export class FakeControl implements VfControl {
  readonly calls: string[] = [];
  /** Options of the calls to read and restore. */
  readonly options: (SnapshotOptions | RestoreOptions)[] = [];
  /** By PCI address; the others have igbvf. */
  readonly drivers = new Map<string, string>();
  readonly groups: string[][] = [];
  /** Of all VFs. */
  mtuLimit = { minBytes: 68, maxBytes: 9000, of: 'its PF ens1' };
  /** Errors for calls, by how they begin in {@link calls}; each is thrown until it is taken out. */
  readonly failures = new Map<string, Error>();
  /** Runs at each call, before it does anything. */
  onCall: (call: string) => unknown = () => undefined;

  async snapshot({ pciAddress }: VfAddress, options: SnapshotOptions): Promise<VfSnapshot> {
    this.options.push(options);
    await this.#called(`read ${pciAddress}`);
    return { driver: this.#driverOf(pciAddress), vf: { trust: false } };
  }

  async configure({ pciAddress }: VfAddress, wanted: VfWanted): Promise<void> {
    await this.#called(`apply ${pciAddress} ${JSON.stringify(wanted)}`);
    if (wanted.driver !== undefined)
      this.drivers.set(pciAddress, wanted.driver === 'default' ? 'igbvf' : wanted.driver);
  }

  async restore({ pciAddress }: VfAddress, before: VfSnapshot, options: RestoreOptions): Promise<void> {
    this.options.push(options);
    await this.#called(`restore ${pciAddress} ${JSON.stringify(before)}`);
    if (before.driver !== undefined) this.drivers.set(pciAddress, before.driver);
  }

  async setLinkState({ pciAddress }: VfAddress, linkState: string): Promise<void> {
    await this.#called(`link ${pciAddress} ${linkState}`);
  }

  async setAgain(): Promise<void> {
    throw new Error('not expected of a driver');
  }

  async settingsOf(): Promise<never> {
    throw new Error('not expected of a driver');
  }

  async access({ pciAddress }: VfAddress, { vhost, rdma }: AccessWanted): Promise<VfAccess> {
    await this.#called(`access ${pciAddress}`);
    const driver = this.#driverOf(pciAddress);
    const group = pciAddress.slice(-1);
    const vfio = driver.includes('vfio') ? { device: `/dev/vfio/${group}`, iommuGroup: group } : undefined;
    return {
      driver,
      ...(vfio === undefined ? {} : { vfio }),
      ...(rdma ? { rdmaDevice: 'mlx5_3' } : {}),
      nodes: [
        ...(vfio === undefined ? [] : ['/dev/vfio/vfio', vfio.device]),
        ...(rdma ? ['/dev/infiniband/uverbs3'] : []),
        ...(vhost ? ['/dev/vhost-net', '/dev/net/tun'] : []),
      ],
    };
  }

  async mtuLimits() {
    return [this.mtuLimit];
  }

  async groupMembers({ pciAddress }: VfAddress): Promise<string[]> {
    const group = this.groups.find((members) => members.includes(pciAddress)) ?? [];
    return group.filter((member) => member !== pciAddress);
  }

  count(start: string): number {
    return this.calls.filter((call) => call.startsWith(start)).length;
  }

  async #called(call: string): Promise<void> {
    await this.onCall(call);
    this.calls.push(call);
    for (const [start, error] of this.failures) if (call.startsWith(start)) throw error;
  }

  #driverOf(pciAddress: string): string {
    return this.drivers.get(pciAddress) ?? 'igbvf';
  }
}

/** The driver with a real store and real CDI files, on VFs `dev-0` to `dev-7` of one PF, `dev-8` and `dev-9` of another, `ib-1` of an InfiniBand PF, NIC `nic-1`. */
export class DriverBench implements Disposable {
  /** How often the networks of the node were read. */
  networkReads = 0;
  readonly #stack = new DisposableStack();
  readonly dir = this.#stack.use(tempDir()).path;
  readonly cdiDir = join(this.dir, 'cdi');
  readonly deviceInfoDir = join(this.dir, 'devinfo');
  readonly store = this.#stack.use(new Store(join(this.dir, 'state.db')));
  readonly control = new FakeControl();
  readonly logger = new RecordingLogger();
  readonly clock = new ManualClock();
  /** What was reported of claims that share a port. */
  readonly shared: string[] = [];
  /** What was reported of calls that take long. */
  readonly waits: string[] = [];
  readonly driver: Driver;
  /** Whether containers show which claims they use. */
  isShownByContainers = true;
  /** Of every VF; they are of one port. */
  bandwidth: { guaranteedMbps: number; portMbps: number; burst?: true } | undefined;
  /** Of the ports of all VFs. */
  linkSpeedMbps: number | undefined;
  /** Resources of device plugins, by the PCI addresses that they give out; `undefined`: unreadable. */
  givenOut: Map<string, string> | undefined = new Map();
  /** PCI addresses of VFs that programs have open through vfio. */
  readonly open = new Set<string>();
  readonly locks = new KeyedMutex();
  readonly namespaceLabels = new Map<string, Record<string, string>>();
  /** What is thrown for an allocation that is not what it should be. */
  checkAllocation: (claim: AllocatedClaim, signal: AbortSignal) => Promise<void> = async () => undefined;
  /** Names of devices that were detached, in that order. */
  readonly released: string[] = [];
  /** Thrown when the device of that name is detached. */
  readonly releaseErrors = new Map<string, Error>();

  constructor(
    networkAttachments: NetworkAttachmentReader = noAttachments,
    cni: CniRules = allCni,
    pools: PoolAddressesOptions = noPools,
  ) {
    this.driver = new Driver({
      driver: testDriver,
      store: this.store,
      locks: this.locks,
      inventory: { pool: testNode, find: (name) => this.#find(name) },
      networkAttachments,
      ...pools,
      control: this.control,
      withdrawMetadata: async ({ name }) => void this.control.calls.push(`withdraw ${name}`),
      isShownByContainers: () => this.isShownByContainers,
      attributesOf: (pciAddress) => ({ 'resource.kubernetes.io/pciBusID': { string: pciAddress } }),
      attachments: { detach: (_, device) => this.#release(device), forget: () => undefined },
      deviceSpecs: new CdiSpecs({ dir: this.cdiDir, driver: testDriver, class: 'device' }),
      dialectFiles: new DialectFiles({
        specs: new CdiSpecs({ dir: this.cdiDir, driver: testDriver, class: 'dialects' }),
        deviceInfoDir: this.deviceInfoDir,
      }),
      openClaimFields: [],
      cni,
      checkAllocation: (claim, signal) => this.checkAllocation(claim, signal),
      judgeOthers: async (devices) => {
        const verdicts = await judgeAll({ read: async () => ({ givenOut: this.givenOut }) }, devices);
        for (const { pciAddress } of devices) {
          if (this.open.has(pciAddress)) verdicts.set(pciAddress, { reason: 'open-elsewhere' });
        }
        return verdicts;
      },
      namespaces: { readLabels: async (namespace) => this.namespaceLabels.get(namespace) ?? {} },
      nodeNetworks: async () => {
        this.networkReads++;
        return [parseCidr('10.1.0.5/16')];
      },
      clock: this.clock,
      onShared: (_, what) => this.shared.push(what),
      onSlow: ({ podUids }, progress) => this.waits.push(`${podUids.join()}: ${progress}`),
      logger: this.logger,
    });
  }

  #find(name: string): NetworkDevice | undefined {
    const vf = vfOf(name);
    const { bandwidth, linkSpeedMbps } = this;
    return vf?.kind === 'vf' ? { ...vf, ...defined({ bandwidth, linkSpeedMbps }) } : vf;
  }

  /** One call of the kubelet for one claim. */
  async prepare(claim: AllocatedClaim): Promise<PrepareResult | undefined> {
    return (await this.prepareAll([claim])).get(claim.identity.uid);
  }

  async prepareAll(
    claims: AllocatedClaim[],
    signal = new AbortController().signal,
  ): Promise<Map<string, PrepareResult>> {
    const results = await this.driver.prepareResourceClaims(claims, { signal });
    // As the framework does when it records the claims.
    const batch = new Batch([...results].map(([uid, result]) => ({ uid, result })));
    this.store.together(() => batch.run(({ result }) => result.devices && result.commit?.()));
    const answerOf = (uid: string, { error = batch.errors.get(uid), devices }: PrepareResult): PrepareResult =>
      error === undefined ? { devices: devices ?? [] } : { error };
    return new Map([...results].map(([uid, result]) => [uid, answerOf(uid, result)]));
  }

  async unprepare({ identity }: { identity: ClaimIdentity }): Promise<Error | undefined> {
    const result = (await this.driver.unprepareResourceClaims([identity])).get(identity.uid);
    if (result instanceof Error) return result;
    result?.discard();
    return undefined;
  }

  /** One round of the task that restores VFs of claims that are gone. @param locks shared with other instances */
  async restoreAll(locks: Locks = this.locks): Promise<void> {
    const { store, control, logger } = this;
    const attachments = { detach: (_: string, device: StoredDevice) => this.#release(device), forget: () => undefined };
    await restoreVfs({ store, attachments, control, locks, logger }, new AbortController().signal);
  }

  [Symbol.dispose](): void {
    this.#stack.dispose();
  }

  async #release({ name }: StoredDevice): Promise<void> {
    const error = this.releaseErrors.get(name);
    if (error !== undefined) throw error;
    this.released.push(name);
  }
}

const noAttachments: NetworkAttachmentReader = {
  readNetworkAttachment: () => Promise.reject(new Error('no claim of this test names a NetworkAttachmentDefinition')),
};

const noPool = () => Promise.reject(new Error('no claim of this test has a pool'));
const noPools: PoolAddressesOptions = {
  addressPools: { assign: noPool, renew: noPool },
  pods: { readPod: noPool },
};

export function vfOf(name: string): NetworkDevice | undefined {
  const facts = { vendor: '8086', device: '10ca', iommuPeers: [], rdmaDevices: [], simulated: false };
  if (name === 'nic-1') return { kind: 'nic', name, pciAddress: '0000:1f:00.1', ...facts };
  if (name === 'ib-1') {
    const ofInfiniband = { pciAddress: '0000:1f:00.2', pfAddress: '0000:03:00.0', vfIndex: 0 };
    return { kind: 'vf', name, linkType: 'infiniband', ...ofInfiniband, ...facts };
  }
  const [, index] = /^dev-(\d)$/.exec(name) ?? [];
  if (index === undefined) return undefined;
  const pfAddress = Number(index) < 8 ? '0000:01:00.0' : '0000:02:00.0';
  const address = { pciAddress: `0000:00:00.${index}`, pfAddress, vfIndex: Number(index) };
  return { kind: 'vf', name, ...address, ...facts };
}
