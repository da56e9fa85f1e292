import { maxReportedAddresses } from '../../node/netlink/index.ts';
import type { Attachment, StoredDevice } from '../state/index.ts';
import type { CniAttacher } from './cni-attacher.ts';
import { canonicalCidr } from './configure-link.ts';
import { vlanOf } from './netlink.ts';
import { pfSettingsOf } from './pf-settings.ts';
import type { AttachStrategy, AttachTask, VfState } from './strategy.ts';
import type { VfHost } from './vf-links.ts';

/** A VF that is bound to vfio has no interface to move: the application configures it from the metadata. */
export class UserSpaceAttach implements AttachStrategy {
  readonly #vfs: Pick<VfHost, 'adminInfo'>;
  readonly #cni: CniAttacher;

  constructor(options: { vfs: Pick<VfHost, 'adminInfo'>; cni: CniAttacher }) {
    this.#vfs = options.vfs;
    this.#cni = options.cni;
  }

  async attach({ device, place, record, signal }: AttachTask): Promise<VfState> {
    record();
    const { addresses } = await this.#cni.addresses(device, place, signal);
    return await this.#describe(device, addresses);
  }

  async read(device: StoredDevice): Promise<VfState | undefined> {
    const { attachment } = device;
    return attachment && (await this.#describe(device, attachment.networkData?.ips ?? []));
  }

  async detach(device: StoredDevice, attachment: Attachment): Promise<void> {
    await this.#cni.remove(device, attachment);
  }

  /** @param given addresses of the IPAM plugin */
  async #describe(device: StoredDevice, given: readonly string[]): Promise<VfState> {
    const { interfaceName, addresses = [], mtu } = device.config;
    const info = await pfSettingsOf(this.#vfs, device, ['vlan', 'hardwareAddress']);
    return {
      ...(interfaceName === undefined ? {} : { interfaceName }),
      hardwareAddress: info?.hardwareAddress,
      ips: [...new Set([...addresses, ...given].map(canonicalCidr))].sort().slice(0, maxReportedAddresses),
      tentative: false,
      ...(mtu === undefined ? {} : { mtuBytes: mtu }),
      ...vlanOf(info),
    };
  }
}
