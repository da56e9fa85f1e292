import type { ClaimIdentity } from '../../framework/metadata/index.ts';
import { NetdraError } from '../../lib/errors.ts';
import type { Logger } from '../../lib/logger.ts';
import { FunctionLinks, type LinkTraffic, type VfTraffic } from '../../node/netlink/index.ts';
import { isUserSpace, type StoredDevice } from '../model/index.ts';
import type { StoredClaims } from '../state/index.ts';
import type { HostVfs } from './host-vfs.ts';
import type { Networks } from './networks.ts';
import { PodLinks } from './pod-links.ts';

/** Maximum number of VFs with counters, which limits the number of time series of a node. */
const maxVfs = 512;

/** Labels of a VF's counters. `interface` is empty for a VF in user space, unless its claim sets a name. */
export interface TrafficLabels {
  device: string;
  namespace: string;
  pod: string;
  claim: string;
  interface: string;
}

export interface TrafficSample {
  labels: TrafficLabels;
  /** Counters of the VF; absent ones are unknown. */
  counters: Partial<LinkTraffic>;
}

export interface TrafficReport {
  samples: TrafficSample[];
  /** Numbers of VFs in pods that are left out: above the limit, or with counters that cannot be read now. */
  missing: { limit: number; unreadable: number };
  /** Messages about counters that cannot be read. */
  failures: string[];
}

export interface TrafficReaderOptions {
  store: StoredClaims;
  networks: Networks;
  vfs: Pick<HostVfs, 'isSimulated' | 'linkKey'>;
  /** Returns the name of a VF's interface in its pod. @throws MetadataError */
  interfaceNameOf: (claim: ClaimIdentity, device: StoredDevice) => string | undefined;
  logger: Pick<Logger, 'warn'>;
}

interface PodVf {
  device: StoredDevice;
  netnsPath: string;
  labels: TrafficLabels;
}

/**
 * Reads the counters of VFs in pods. For real VFs, also in user space, the PF has the counters; error counters come from the
 * VF's interface. If the PF does not count, cannot list its VFs, or omits the VF, all counters come from the interface. So
 * they do for simulated VFs, which have no PF.
 */
export class TrafficReader {
  readonly #options: TrafficReaderOptions;
  readonly #hostLinks: FunctionLinks;
  /** Failures of the last reading, which were logged. */
  #logged = new Set<string>();

  constructor(options: TrafficReaderOptions) {
    this.#options = options;
    this.#hostLinks = new FunctionLinks(options.networks.host.connection);
  }

  /** Reads all counters. Never rejects: VFs whose counters are unreadable count as missing, and the failure is logged once. */
  async read(): Promise<TrafficReport> {
    const all = this.#podVfs();
    const vfs = all.slice(0, maxVfs);
    const failures = new Set<string>();
    const ofPfs = await this.#readPfs(vfs, failures);
    const samples: TrafficSample[] = [];
    for (const vf of vfs) {
      const ofPf = ofPfs(vf.device);
      const ofLink = isUserSpace(vf.device) ? undefined : await this.#attempt(failures, () => this.#readLink(vf));
      const counters = countersOf(ofPf, ofLink);
      if (counters !== undefined) samples.push({ labels: vf.labels, counters });
    }
    this.#logged = failures;
    const missing = { limit: all.length - vfs.length, unreadable: vfs.length - samples.length };
    return { samples, missing, failures: [...failures] };
  }

  #podVfs(): PodVf[] {
    return this.#options.store.claims().flatMap(({ identity, devices }) =>
      devices.flatMap((device) => {
        const { podName: pod, netnsPath } = device.attachment ?? {};
        if (pod === undefined || netnsPath === undefined) return [];
        const { namespace, name: claim } = identity;
        const labels = {
          device: device.name,
          namespace,
          pod,
          claim,
          interface: this.#nameOf(identity, device) ?? device.config.interfaceName ?? '',
        };
        return [{ device, netnsPath, labels }];
      }),
    );
  }

  #nameOf(claim: ClaimIdentity, device: StoredDevice): string | undefined {
    try {
      return this.#options.interfaceNameOf(claim, device);
    } catch {
      // Other work that needs the record reports that it is unreadable; other VFs are unaffected.
      return undefined;
    }
  }

  /**
   * Reads the counters of PFs, with one request for each PF. @returns a function that returns the counters of a device;
   * `undefined` if its PF does not count or report them
   */
  async #readPfs(vfs: readonly PodVf[], failures: Set<string>) {
    const pfs = new Map<string, VfTraffic[]>();
    const addresses = this.#options.vfs.isSimulated ? [] : vfs.flatMap(({ device }) => device.pfAddress ?? []);
    for (const address of new Set(addresses)) {
      const vfs = (await this.#attempt(failures, () => this.#readPf(address))) ?? [];
      if (doesCount(vfs)) pfs.set(address, vfs);
    }
    return ({ pfAddress, vfIndex }: StoredDevice) => {
      const found = pfs.get(pfAddress ?? '')?.find((each) => each.vfIndex === vfIndex);
      if (found === undefined) return undefined;
      const { vfIndex: _vfIndex, ...counters } = found;
      return counters;
    };
  }

  async #readPf(pciAddress: string): Promise<VfTraffic[]> {
    const link = await this.#hostLinks.find(pciAddress);
    return link === undefined ? [] : await this.#options.networks.host.connection.vfTraffic(link.index);
  }

  /**
   * Reads the counters of a VF's link. Finds the link by its identity, since the pod can rename it. @returns `undefined` if
   * the VF has left the pod
   */
  async #readLink({ device, netnsPath }: PodVf): Promise<LinkTraffic | undefined> {
    const { networks, vfs } = this.#options;
    using namespace = networks.open(netnsPath);
    if (namespace === undefined || namespace.isHost) return undefined;
    const link = await new PodLinks(namespace, (pciAddress) => vfs.linkKey(pciAddress)).find(device);
    return link && (await namespace.connection.linkTraffic(link.index));
  }

  async #attempt<T>(failures: Set<string>, read: () => Promise<T>): Promise<T | undefined> {
    try {
      return await read();
    } catch (error) {
      if (!(error instanceof NetdraError)) throw error;
      failures.add(error.message);
      if (!this.#logged.has(error.message)) this.#options.logger.warn({ err: error }, 'cannot read traffic counters');
      return undefined;
    }
  }
}

/**
 * Combines counters. @param ofPf counters from a PF that counts @param ofLink counters of the interface in the pod @returns
 * `undefined` if both are unknown
 */
function countersOf(ofPf: Partial<LinkTraffic> | undefined, ofLink: LinkTraffic | undefined) {
  if (ofPf === undefined || ofLink === undefined) return ofPf ?? ofLink;
  const { rxErrors, txErrors } = ofLink;
  return { ...ofPf, rxErrors, txErrors };
}

/** Returns whether a PF counts for its VFs. The drivers of other PFs, such as igb and ixgbe, report zeros for all VFs. */
function doesCount(vfs: readonly VfTraffic[]): boolean {
  return vfs.some(({ vfIndex: _vfIndex, ...counters }) => Object.values(counters).some((value) => value > 0));
}
