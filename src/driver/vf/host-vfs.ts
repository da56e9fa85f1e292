import type { Clock } from '../../lib/clock.ts';
import { defined } from '../../lib/defined.ts';
import type { Logger } from '../../lib/logger.ts';
import { linkIdentity, type NetworkDevice } from '../../node/inventory/index.ts';
import type { AdminSettings, Link, LinkEthtool, VfIdentity } from '../../node/netlink/index.ts';
import {
  type Card,
  HostLinks,
  type HungWrite,
  type KernelWriterOptions,
  openCard,
  SimulatedControl,
  type SimulatedNic,
  type Sysfs,
  type VfAddress,
  VfHardware,
  type VfHardwareOptions,
} from '../../node/sriov/index.ts';
import { namingPolicy } from './guaranteed-rates.ts';

/** Host-side changes of VFs, real or simulated: kernel driver, and the PF's settings. */
export type VfControl = Pick<
  VfHardware,
  | 'access'
  | 'configure'
  | 'groupMembers'
  | 'mtuLimits'
  | 'restore'
  | 'setAgain'
  | 'setLinkState'
  | 'settingsOf'
  | 'snapshot'
>;

/** Access to the VFs of a node. */
export interface HostVfsSources {
  /** Netlink connection in the host's network namespace. */
  host: VfHardwareOptions['host'];
  /** Ethtool in the host's network namespace. Absent: ethtool settings are not restored. */
  ethtool?: LinkEthtool;
  clock: Clock;
  /** Mount point of sysfs; default `/sys`. */
  sysfsRoot?: string;
  /** Simulated NIC; absent: the node's own devices are used. */
  nic?: SimulatedNic;
  /** Options for writes to sysfs, which can hang. */
  kernelWrites?: Pick<KernelWriterOptions, 'end' | 'timeoutMs'>;
  /**
   * Returns access to the node's PCI functions; default: through sysfs.
   * @param onHang called when a device begins to hang, and when it has recovered
   */
  openCard?: (onHang: (hung: readonly HungWrite[]) => void) => Card;
  logger: Logger;
}

export interface HostVfsOptions extends HostVfsSources {
  /** Returns a known device by its PCI address. */
  deviceAt: (pciAddress: string) => NetworkDevice | undefined;
  /** Checks that devices were listed: without a list, an unknown device may exist. @throws NetdraError `devices-unlisted` */
  assertListed: () => void;
  /** Called when a device begins to hang, and when it has recovered. */
  onHungChange: (hung: readonly HungWrite[]) => void;
  /** Called by {@link namingPolicy} when a card refuses the rates of a policy. Default: no policy requests rates. */
  onRatesRefused?: Parameters<typeof namingPolicy>[1];
}

/** Host side of the node's VFs, real or simulated: their hardware, and their links while they are in no pod. */
export class HostVfs implements Disposable {
  readonly sysfs: Sysfs;
  /** Changes VFs from the host side. */
  readonly control: VfControl;
  readonly #options: HostVfsOptions;
  readonly #hardware: VfHardware | undefined;
  readonly #links: HostLinks;
  /** Writer of sysfs files, whose writes may never return. */
  readonly #kernel: Card['writes'];

  constructor(options: HostVfsOptions) {
    const { host, ethtool, clock, sysfsRoot = '/sys', nic, kernelWrites, onHungChange } = options;
    const writes = { clock, ...kernelWrites, onChange: onHungChange };
    const { binding, nodes, ...card } = options.openCard?.(onHungChange) ?? openCard(sysfsRoot, writes);
    this.#options = options;
    this.#kernel = card.writes;
    this.#links = new HostLinks({ binding, host, clock });
    this.sysfs = nic?.sysfs ?? card.sysfs;
    if (nic === undefined) {
      const onNotReset = (device: string, driver: string) =>
        options.logger.warn(
          { device, driver },
          'cannot reset a VF between two claims: the card cannot reset single functions',
        );
      const onAddressKept = (device: string, hardwareAddress: string) =>
        options.logger.warn(
          { device, hardwareAddress },
          'VF keeps an administrative MAC: its PF refuses to remove one, so pods cannot set another',
        );
      const hooks = { onNotReset, onAddressKept };
      this.#hardware = new VfHardware({ binding, host, clock, nodes, ...hooks, ...defined({ ethtool }) });
    }
    const control = this.#hardware ?? new SimulatedControl();
    this.control = namingPolicy(control, options.onRatesRefused ?? (async () => undefined));
  }

  get isSimulated(): boolean {
    return this.#options.nic !== undefined;
  }

  /** Writes from which the kernel has not returned, one for each device. */
  get hungWrites(): readonly HungWrite[] {
    return this.#kernel.hung;
  }

  /** Returns the properties that identify the link of a VF. */
  linkKey(pciAddress: string): VfIdentity {
    const { interfaceName } = this.#options.deviceAt(pciAddress) ?? {};
    return { ...linkIdentity({ pciAddress, simulated: this.isSimulated }), ...defined({ interfaceName }) };
  }

  /**
   * Returns the PF's settings for a VF. For a VF without an interface there are no other facts. `undefined` if the VF is
   * simulated, or if the PF has no interface.
   * @throws UnknownVfStateError if the PF does not report the VF
   */
  async adminInfo(address: VfAddress): Promise<AdminSettings | undefined> {
    if (this.#hardware === undefined) return undefined;
    if (address.pfAddress !== undefined) return await this.#hardware.info(address);
    // A whole NIC has no PF: it keeps its own address in user space.
    this.#options.assertListed();
    const { hardwareAddress } = this.#options.deviceAt(address.pciAddress) ?? {};
    return hardwareAddress === undefined ? undefined : { hardwareAddress };
  }

  /** Returns the current name of a device's RDMA device; `undefined` if it has none. @throws SriovError */
  async rdmaDevice(address: VfAddress): Promise<string | undefined> {
    return await this.#hardware?.rdmaDevice(address);
  }

  /**
   * Makes sure that the VF has a link on the host, unless its link is in another namespace: a simulated VF is destroyed with
   * its namespace.
   * @param withinMs how long to wait for a link that the kernel returns, ms; default: some seconds
   * @returns the link of a real VF, if its driver creates one
   */
  async ensureLink(pciAddress: string, withinMs?: number): Promise<Link | undefined> {
    const { nic } = this.#options;
    if (nic === undefined) return await this.#links.ensure(pciAddress, withinMs);
    await nic.ensureVf(pciAddress, withinMs);
    return undefined;
  }

  /** Returns whether the VF exists and has no kernel driver. */
  async isUnbound(pciAddress: string): Promise<boolean> {
    return !this.isSimulated && (await this.#links.isUnbound(pciAddress));
  }

  /** Ensures the link of a VF that was moved away. Recreates its interface if that is in an unreachable namespace. */
  async recreate(pciAddress: string): Promise<void> {
    const isNew = await (this.#options.nic?.recreateVf(pciAddress) ?? this.#links.recreate(pciAddress));
    if (isNew)
      this.#options.logger.warn(
        { device: pciAddress },
        'recreated a VF that was in a network namespace which cannot be reached',
      );
  }

  [Symbol.dispose](): void {
    this.#kernel[Symbol.dispose]();
  }
}
