import {
  isEthernetAddress,
  type Link,
  NetlinkError,
  type RtnlConnection,
  type VfChange,
  type VfInfo,
} from '../netlink/index.ts';
import { SriovError } from './errors.ts';
import { assertNoVfProperties } from './plain-nic.ts';
import type { VfAddress } from './vf-hardware.ts';

/** Properties that a PF is to set for a VF; absent ones stay unchanged, including an absent half of the rate. */
export type VfPropertiesWanted = Omit<VfChange, 'rate'> & { rate?: Partial<NonNullable<VfChange['rate']>> };

export interface VfPropertiesOptions {
  /** Connection into the namespace that the PFs' interfaces are in. */
  host: Pick<RtnlConnection, 'vfInfos' | 'setVf'>;
  /** The interface of a PCI function; `undefined` if it has none there. */
  linkOf: (pciAddress: string) => Promise<PfLink | undefined>;
  driverOf: (pciAddress: string) => Promise<string | undefined>;
}

type PfLink = Pick<Link, 'index' | 'name' | 'hardwareAddress'>;

const noAddress = '00:00:00:00:00:00';

/** The field of VFConfig that each property comes from. */
const fieldsOf: Readonly<Record<keyof VfChange, string>> = {
  hardwareAddress: 'macAddress',
  vlan: 'vf.vlan, vf.qos and vf.vlanProto',
  spoofCheck: 'vf.spoofCheck',
  trust: 'vf.trust',
  linkState: 'vf.linkState',
  rate: 'vf.minTxRate and vf.maxTxRate',
};

/** Reads and sets the PFs' settings for their VFs. */
export class VfProperties {
  readonly #options: VfPropertiesOptions;

  constructor(options: VfPropertiesOptions) {
    this.#options = options;
  }

  /**
   * All that can be known of a VF without an interface; `undefined` for plain NICs, for VFs whose PF has no interface
   * either (it may be in user space itself), and where the PF leaves the VF out. Only Ethernet addresses are included:
   * an InfiniBand PF reports the beginning of a longer one, which nothing here can set.
   */
  async info(address: VfAddress): Promise<VfInfo | undefined> {
    const { info, isInfiniBand } = await this.#ask(address);
    if (info === undefined || !isInfiniBand) return info;
    const { hardwareAddress: _truncated, ...rest } = info;
    return rest;
  }

  /** The current properties, in the form in which they can be set again. */
  async read(address: VfAddress): Promise<VfChange> {
    const { info, isInfiniBand } = await this.#ask(address);
    const { hardwareAddress, ...rest } = toChange(info);
    return hardwareAddress === undefined || isInfiniBand ? rest : { hardwareAddress, ...rest };
  }

  /**
   * Sets the properties that differ: many drivers refuse to set what they do not support, even to its present value.
   * Each property is set separately, and a failure does not stop the others.
   * @returns whether the VF has another administrative address than before
   * @throws SriovError `property-unsupported` with the fields, `no-vf`, `vf-missing`; NetlinkError
   */
  async set(address: VfAddress, wanted: VfPropertiesWanted): Promise<boolean> {
    const { pciAddress, vfIndex } = address;
    if (address.pfAddress === undefined || vfIndex === undefined) {
      assertNoVfProperties(pciAddress, complete(wanted, {}));
      return false;
    }
    if (Object.keys(wanted).length === 0) return false;
    const { index } = await this.#pfLink(address);
    const now = await this.read(address);
    const change = difference(now, complete(wanted, now));
    const failed: { property: keyof VfChange; error: unknown }[] = [];
    for (const [property, value] of Object.entries(change) as [keyof VfChange, unknown][]) {
      try {
        await this.#options.host.setVf(index, vfIndex, { [property]: value });
      } catch (error) {
        failed.push({ property, error });
      }
    }
    if (failed.length > 0) throw await this.#explainFailure(address, failed);
    return change.hardwareAddress !== undefined;
  }

  /**
   * Makes an address administrative, even if the PF already reports it: some, such as igb, report the one that the VF
   * has chosen itself, which is lost at its next reset. A PF that cannot set addresses is left alone.
   * @throws SriovError `property-refused`, `vf-missing`
   */
  async pinAddress(address: VfAddress, hardwareAddress: string): Promise<void> {
    const { vfIndex } = address;
    if (address.pfAddress === undefined || vfIndex === undefined) return;
    const { index } = await this.#pfLink(address);
    try {
      await this.#options.host.setVf(index, vfIndex, { hardwareAddress });
    } catch (error) {
      if (!isUnsupported(error)) throw await this.#explainFailure(address, [{ property: 'hardwareAddress', error }]);
    }
  }

  async #ask({ pfAddress, vfIndex }: VfAddress): Promise<{ info?: VfInfo; isInfiniBand: boolean }> {
    const pf = pfAddress === undefined ? undefined : await this.#options.linkOf(pfAddress);
    if (pf === undefined) return { isInfiniBand: false };
    const info = (await this.#options.host.vfInfos(pf.index)).find((each) => each.vfIndex === vfIndex);
    const isInfiniBand = pf.hardwareAddress !== undefined && !isEthernetAddress(pf.hardwareAddress);
    return { ...(info === undefined ? {} : { info }), isInfiniBand };
  }

  async #explainFailure(address: VfAddress, failed: { property: keyof VfChange; error: unknown }[]): Promise<unknown> {
    const first = failed.find(({ error }) => !isUnsupported(error)) ?? failed[0];
    if (first === undefined) return undefined;
    const { pciAddress, pfAddress = '', vfIndex } = address;
    const { name } = await this.#pfLink(address);
    const driver = (await this.#options.driverOf(pfAddress)) ?? 'none';
    const subject = `VF ${vfIndex} (${pciAddress}) of PF ${name} (${pfAddress}, driver ${driver})`;
    const properties = failed.map(({ property }) => property).join(', ');
    const details = {
      device: pciAddress,
      cause: first.error,
      properties: failed.map(({ property }) => property),
    };
    if (!failed.every(({ error }) => isUnsupported(error))) {
      const retriable = first.error instanceof NetlinkError && first.error.retriable;
      return new SriovError('property-refused', `cannot set ${properties} of ${subject}`, { ...details, retriable });
    }
    const hint = `leave ${failed.map(({ property }) => fieldsOf[property]).join(', ')} out, or use a card that can do it`;
    return new SriovError('property-unsupported', `the card cannot set ${properties} of ${subject}`, {
      ...details,
      hint,
    });
  }

  async #pfLink({ pciAddress, pfAddress }: VfAddress): Promise<PfLink> {
    const pf = pfAddress === undefined ? undefined : await this.#options.linkOf(pfAddress);
    if (pf !== undefined) return pf;
    throw new SriovError('vf-missing', `the PF ${pfAddress} of ${pciAddress} has no network interface`, {
      device: pciAddress,
      retriable: true,
      hint: 'properties of VFs are set through it: it must be in the network namespace of the driver',
    });
  }
}

function isUnsupported(error: unknown): boolean {
  return error instanceof NetlinkError && ['EOPNOTSUPP', 'ENOTSUP'].includes(error.errno ?? '');
}

/** The change that brings a VF back to what the PF reports now. */
function toChange(info: VfInfo | undefined): VfChange {
  if (info === undefined) return {};
  const { hardwareAddress = noAddress, vlan, spoofCheck, trust, linkState, minTxRateMbps, maxTxRateMbps } = info;
  return {
    hardwareAddress,
    vlan: vlan ?? { id: 0, priority: 0 },
    ...(spoofCheck === undefined ? {} : { spoofCheck }),
    ...(trust === undefined ? {} : { trust }),
    ...(linkState === undefined ? {} : { linkState }),
    ...(minTxRateMbps === undefined || maxTxRateMbps === undefined
      ? {}
      : { rate: { minMbps: minTxRateMbps, maxMbps: maxTxRateMbps } }),
  };
}

/** The kernel sets both rates at once. */
function complete({ rate, ...rest }: VfPropertiesWanted, now: VfChange): VfChange {
  if (rate === undefined) return rest;
  return { ...rest, rate: { minMbps: 0, maxMbps: 0, ...now.rate, ...rate } };
}

function difference(now: VfChange, wanted: VfChange): VfChange {
  const changed = Object.entries(wanted).filter(
    ([property, value]) => comparable(now[property as keyof VfChange]) !== comparable(value),
  );
  return Object.fromEntries(changed);
}

/** Equal for equal values: hardware addresses in either case, VLANs with and without default values. */
function comparable(value: VfChange[keyof VfChange]): string {
  if (typeof value === 'object' && 'id' in value) {
    const { id, priority = 0, protocol = '802.1q' } = value;
    return id === 0 ? 'untagged' : `${id} ${priority} ${protocol}`;
  }
  if (typeof value === 'object') return `${value.minMbps} ${value.maxMbps}`;
  return String(value).toLowerCase();
}
