import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { locateTools } from '../../e2e/node/tools.ts';
import type { SandboxPlace, StoredDevice, VfConfig } from '../../src/driver/model/index.ts';
import { Store } from '../../src/driver/state/index.ts';
import { CniAttacher } from '../../src/driver/vf/cni-attacher.ts';
import { Attachments } from '../../src/driver/vf/index.ts';
import type { NetworkDeviceData } from '../../src/framework/metadata/index.ts';
import { systemClock } from '../../src/lib/clock.ts';
import { CniRunner } from '../../src/node/cni/index.ts';
import {
  type AdminSettings,
  EthtoolConnection,
  type EthtoolState,
  KernelNetworks,
  NetnsHandle,
  RtnlConnection,
  readHostConfig,
  readLinkState,
} from '../../src/node/netlink/index.ts';
import type { VfSnapshot } from '../../src/node/sriov/index.ts';
import { RecordingLogger } from '../doubles/logger.ts';
import { TestNetns } from '../doubles/netns.ts';
import { storedClaim, storedDevice } from '../doubles/stored-claims.ts';
import { tempDir } from '../doubles/temp-dir.ts';

const never = new AbortController().signal;
export const pciAddress = (index: number) => `0000:3b:02.${index}`;

/**
 * Attachments with a real store and real CNI plugins. VFs are ends of veth pairs in the namespace that the test runs in,
 * distinguished by their alias, as simulated ones are.
 */
export class AttachmentBench implements AsyncDisposable {
  readonly #stack = new AsyncDisposableStack();
  readonly #dir = this.#stack.use(tempDir()).path;
  readonly store = this.#stack.use(new Store(join(this.#dir, 'state.db')));
  readonly logger = new RecordingLogger();
  readonly #networks = this.#stack.use(new KernelNetworks({ procSysDir: '/proc/sys' }));
  readonly #leasesDir = join(this.#dir, 'leases');
  readonly runner = this.#stack.use(
    new CniRunner({
      binDirs: [locateTools(process.env).cniBinDir],
      cacheDir: join(this.#dir, 'cni'),
      clock: systemClock,
      logger: this.logger,
    }),
  );
  /** What the PF has set for all VFs. */
  adminInfo: AdminSettings | undefined;
  /** UIDs of pods whose addresses were found to be those of others, or no longer. */
  readonly conflicts: string[] = [];
  /** Whether VFs have no kernel driver, as after a reset. */
  isUnbound = false;
  readonly #attachments = new Attachments({
    networks: this.#networks,
    vfs: {
      linkKey: (address) => ({ alias: `vf ${address}` }),
      adminInfo: async ({ vfIndex = 0 }) => this.adminInfo && { vfIndex, ...this.adminInfo },
      rdmaDevice: async () => undefined,
      ensureLink: async () => undefined,
      isUnbound: async () => this.isUnbound,
      recreate: async () => undefined,
    },
    cni: new CniAttacher({ runner: this.runner, clock: systemClock, logger: this.logger }),
    store: this.store,
    clock: systemClock,
    logger: this.logger,
    onConflict: (podUid) => void this.conflicts.push(podUid),
  });

  /** A pair whose one end is the VF. */
  createVf(index: number): void {
    ip(
      'link',
      'add',
      `vf${index}`,
      'address',
      `02:00:00:00:00:0${index}`,
      'numtxqueues',
      '2',
      'type',
      'veth',
      'peer',
      'name',
      `peer${index}`,
    );
    ip('link', 'set', `vf${index}`, 'alias', `vf ${pciAddress(index)}`);
    ip('link', 'set', `peer${index}`, 'up');
    // Deleting one end deletes the other, wherever it is; the kernel may have done so with the pod.
    this.#stack.defer(() => {
      // The kernel may be at it in this moment: only one that stays is an error.
      for (let tries = 0; links().includes(`peer${index}`); tries++) {
        spawnSync('ip', ['link', 'delete', `peer${index}`]);
        if (tries === 100) throw new Error(`peer${index} cannot be deleted`);
      }
    });
  }

  /** The name of a new bridge. */
  bridge(): string {
    const name = 'bridge1';
    if (links().includes(name)) return name;
    ip('link', 'add', name, 'type', 'bridge');
    ip('link', 'set', name, 'up');
    this.#stack.defer(() => void ip('link', 'delete', name));
    return name;
  }

  /** A NIC as prepare reads it for a claim with `keepHostConfig`. */
  async snapshot(name: string): Promise<VfSnapshot> {
    const { connection } = this.#networks.host;
    const found = await connection.link({ name });
    if (found === undefined) throw new Error(`there is no ${name}`);
    const [state, hostConfig] = [await readLinkState(connection, found.index), await readHostConfig(connection, found)];
    return { vf: {}, link: { ...state, hostConfig } };
  }

  /** Devices of a claim that is prepared. */
  prepare(
    claim: string,
    devices: { index: number; config: VfConfig; userSpace?: boolean; before?: VfSnapshot }[],
  ): void {
    const stored = devices.map(({ index, config, userSpace = false, ...rest }): StoredDevice => {
      const vfio = userSpace ? { vfio: { device: '/dev/vfio/42', iommuGroup: '42' } } : {};
      const address = { pciAddress: pciAddress(index), pfAddress: '0000:3b:00.0', vfIndex: index };
      return storedDevice({ ...address, name: `0000-3b-02-${index}`, config, access: { nodes: [], ...vfio }, ...rest });
    });
    const identity = { uid: claim, namespace: 'default', name: claim };
    this.store.putClaim(storedClaim({ identity, podUids: ['pod-uid'], devices: stored }));
  }

  /** What a sandbox does for all devices of a claim. */
  async attach(
    claim: string,
    pod: TestNetns,
    sandboxId = 'sandbox1',
    podUid = 'pod-uid',
    reconfigure?: () => Promise<void>,
  ) {
    using namespace = this.#networks.open(pod.path);
    if (namespace === undefined) throw new Error(`there is no namespace at ${pod.path}`);
    const links = this.#attachments.podLinks(namespace);
    const place: SandboxPlace = { podUid, podNamespace: 'default', podName: 'app', sandboxId, netnsPath: pod.path };
    const states = [];
    for (const device of this.devices(claim)) {
      states.push(await this.#attachments.attach(claim, device, place, links, never, reconfigure));
    }
    return states;
  }

  /** What a sandbox does after a change in the pod. */
  async read(claim: string, pod: TestNetns, known?: NetworkDeviceData) {
    using namespace = this.#networks.open(pod.path);
    if (namespace === undefined) throw new Error(`there is no namespace at ${pod.path}`);
    const links = this.#attachments.podLinks(namespace);
    return await Promise.all(this.devices(claim).map((device) => this.#attachments.read(device, links, known)));
  }

  async detach(claim: string): Promise<void> {
    for (const device of this.devices(claim)) await this.#attachments.detach(claim, device);
  }

  devices(claim: string): StoredDevice[] {
    return (this.store.claim(claim)?.devices ?? []).map((device) => ({ ...device }));
  }

  /** ethtool's settings of an interface, on the host if no pod is given. */
  async ethtool(name: string, pod?: TestNetns): Promise<EthtoolState> {
    return await this.#withEthtool(name, pod, (connection, index) => connection.read(index));
  }

  async setFeature(name: string, feature: string, value: boolean, pod: TestNetns): Promise<void> {
    await this.#withEthtool(name, pod, (connection, index) => connection.set(index, 'features', { [feature]: value }));
  }

  async #withEthtool<Result>(
    name: string,
    pod: TestNetns | undefined,
    use: (connection: EthtoolConnection, index: number) => Promise<Result>,
  ): Promise<Result> {
    using netns = pod?.open() ?? NetnsHandle.own();
    using connection = EthtoolConnection.open(netns);
    using links = RtnlConnection.open(netns);
    const link = await links.link({ name });
    if (link === undefined) throw new Error(`there is no ${name}`);
    return await use(connection, link.index);
  }

  newPod(): TestNetns {
    return this.#stack.use(new TestNetns('pod'));
  }

  ipam(rangeEnd = '10.89.7.20') {
    const ranges = [[{ subnet: '10.89.7.0/24', rangeStart: '10.89.7.10', rangeEnd }]];
    return { type: 'host-local', dataDir: this.#leasesDir, ranges };
  }

  /** Addresses that host-local has given away, in any network. */
  leases(): string[] {
    if (!existsSync(this.#leasesDir)) return [];
    const files = readdirSync(this.#leasesDir).flatMap((network) => readdirSync(join(this.#leasesDir, network)));
    return files.filter((name) => /^\d+\./.test(name)).sort();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.disposeAsync();
  }
}

export function ip(...args: string[]): string {
  return execFileSync('ip', args, { encoding: 'utf8' });
}
export const links = (): string[] => JSON.parse(ip('-j', 'link')).map(({ ifname }: { ifname: string }) => ifname);
