import { KernelNetworks } from '../../driver/sandbox/index.ts';
import { TrafficReader } from '../../driver/vf/index.ts';
import { type HostDirs, inspectClaim } from '../../framework/metadata/index.ts';
import { linkIdentity } from '../../node/inventory/index.ts';
import { openStored, type Stored } from './stored-claims.ts';
import type { TrafficView } from './top.ts';

export interface PodTrafficOptions {
  /** The driver's directories. */
  dirs: HostDirs & { stateDir: string };
  driverName: string;
  simulated: boolean;
  procSysDir: string;
}

/** Reads the counters of the VFs in pods beside the running driver. */
export class PodTraffic implements Disposable {
  readonly #options: PodTrafficOptions;
  readonly #networks: KernelNetworks;
  readonly #stored: Stored;
  readonly #reader: TrafficReader;
  /** By UID of the claim and name of the device. */
  readonly #interfaces = new Map<string, string>();

  /** @throws NetlinkError, StateError `store-unusable` */
  constructor(options: PodTrafficOptions) {
    const { dirs, simulated, procSysDir } = options;
    this.#options = options;
    this.#networks = new KernelNetworks({ procSysDir });
    this.#stored = openStored(dirs);
    this.#reader = new TrafficReader({
      networks: this.#networks,
      store: { claims: () => [...this.#stored.claims] },
      vfs: { isSimulated: simulated, linkKey: (pciAddress) => linkIdentity({ pciAddress, simulated }) },
      interfaceNameOf: ({ uid }, { name }) => this.#interfaces.get(`${uid} ${name}`),
      // The report has the failures.
      logger: { warn: () => undefined },
    });
  }

  /** @throws StateError, MetadataError */
  async read(): Promise<TrafficView> {
    const { driverName, dirs } = this.#options;
    for (const { identity, devices } of this.#stored.claims) {
      if (devices.every(({ name }) => this.#interfaces.has(`${identity.uid} ${name}`))) continue;
      const { requests = [] } = (await inspectClaim(driverName, dirs, identity, this.#stored.records)) ?? {};
      for (const { name, networkData } of requests.flatMap(({ content = [] }) => content))
        if (networkData?.interfaceName) this.#interfaces.set(`${identity.uid} ${name}`, networkData.interfaceName);
    }
    return { atMs: Date.now(), ...(await this.#reader.read()) };
  }

  [Symbol.dispose](): void {
    this.#stored[Symbol.dispose]();
    this.#networks[Symbol.dispose]();
  }
}
