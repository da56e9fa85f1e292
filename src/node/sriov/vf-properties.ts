import type { Clock } from '../../lib/clock.ts';
import { NetdraError } from '../../lib/errors.ts';
import {
  type FunctionLinks,
  isEthernetAddress,
  type Link,
  NetlinkError,
  type VfChange,
  type VfInfo,
  type VfInfoAccess,
} from '../netlink/index.ts';
import type { DriverBinding } from './driver-binding.ts';
import { missingPf, SriovError, UnknownVfStateError } from './errors.ts';
import { PfLists } from './pf-lists.ts';
import {
  assertNoVfProperties,
  complete,
  difference,
  leftBehind,
  noAddress,
  propertiesOf,
  toChange,
  type VfPropertiesWanted,
  type VfProperty,
  withoutEffect,
} from './property-values.ts';
import type { PropertyFailure } from './restore-failures.ts';
import type { VfAddress } from './vf-snapshot.ts';

interface VfPropertiesOptions {
  /** Netlink connection in the namespace that the PFs' interfaces are in. */
  host: VfInfoAccess;
  links: FunctionLinks;
  binding: DriverBinding;
  clock: Clock;
}

/** Fields of VFConfig for each property, for messages. */
const fieldsOf: Readonly<Record<VfProperty, string>> = {
  hardwareAddress: 'macAddress',
  vlan: 'vf.vlan, vf.qos and vf.vlanProto',
  spoofCheck: 'vf.spoofCheck',
  trust: 'vf.trust',
  linkState: 'vf.linkState',
  rate: 'vf.minTxRate and vf.maxTxRate',
};

/** A property that could not be set, with the error. */
type Failed = PropertyFailure & { property: VfProperty };

/** Reads and sets the PFs' settings for their VFs. */
export class VfProperties {
  readonly #options: VfPropertiesOptions;
  readonly #lists: PfLists;

  constructor(options: VfPropertiesOptions) {
    this.#options = options;
    this.#lists = new PfLists(options.host, options.clock);
  }

  /**
   * Returns the PF's settings for a VF; `undefined` for whole NICs, and for VFs whose PF has no interface (it may itself be
   * in user space). Leaves out addresses of InfiniBand, of which the PF reports only the beginning. An InfiniBand PF has no
   * VLANs either, so a VF that it does not report is `undefined`, too. Waits for a VF that is being reset.
   * @throws UnknownVfStateError if the PF does not report the VF
   */
  async info(address: VfAddress): Promise<VfInfo | undefined> {
    return await this.#lists.poll(address, () => this.#infoNow(address));
  }

  /**
   * Returns the current properties, in the form in which they can be set again; an empty object if there is no PF. Waits for
   * a VF that is being reset.
   * @throws UnknownVfStateError if the PF does not report the VF
   */
  async read(address: VfAddress): Promise<VfChange> {
    return (await this.#poll(address)).now;
  }

  /**
   * Reads the current properties of all VFs that a PF reports, by VF index, with one request. Does not wait for VFs that are
   * being reset.
   * @throws UnknownVfStateError if the PF cannot be asked
   */
  async readAll(pfAddress: string): Promise<Map<number, VfChange>> {
    const pf = await this.#options.links.find(pfAddress);
    if (pf === undefined) throw UnknownVfStateError.withoutPf(pfAddress);
    const infos = await this.#lists.read(pf, {
      device: pfAddress,
      subject: 'its VFs',
      pf: `PF ${pf.name} (${pfAddress})`,
    });
    return new Map(infos.map((info) => [info.vfIndex, changeOf(info, pf)]));
  }

  /**
   * Sets the properties that differ: many drivers refuse to set an unsupported property, even to its present value. Sets each
   * property separately; a failure does not stop the others. Reads the result back.
   * @param before snapshot with each property that is changed; absent when `wanted` is a snapshot to be restored
   * @returns whether the VF has another administrative address than before
   * @throws SriovError `property-unsupported` and `property-refused` with the properties, `no-vf`, `vf-missing`;
   * UnknownVfStateError if the PF does not report the VF, or the snapshot lacks a property: nothing was changed then
   */
  async set(address: VfAddress, wanted: VfPropertiesWanted, before?: VfChange): Promise<boolean> {
    const { pciAddress, pfAddress, vfIndex } = address;
    if (pfAddress === undefined || vfIndex === undefined) {
      assertNoVfProperties(pciAddress, complete(wanted, {}));
      return false;
    }
    if (propertiesOf(wanted).length === 0) return false;
    const { pf, now } = await this.#poll(address);
    if (pf === undefined) throw missingPf(address);
    const change = difference(now, complete(wanted, now));
    if (before !== undefined) await this.#assertKnown(address, propertiesOf(change), before, now);
    const failed: Failed[] = [];
    for (const property of propertiesOf(change)) {
      try {
        await this.#setVf(pf.index, vfIndex, { [property]: change[property] });
      } catch (error) {
        failed.push({ property, error });
      }
    }
    if (failed.length > 0) throw await this.#explainFailure(address, failed);
    await this.#assertEffect(address, change, now);
    return change.hardwareAddress !== undefined;
  }

  /**
   * Makes an address administrative, even if the PF already reports it: some PFs, such as igb, report the address that the VF
   * has chosen itself, which is lost at its next reset. Does nothing if the PF cannot set addresses.
   * @throws SriovError `property-refused`, `vf-missing`; UnknownVfStateError
   */
  async pinAddress(address: VfAddress, hardwareAddress: string): Promise<void> {
    const { vfIndex } = address;
    if (address.pfAddress === undefined || vfIndex === undefined) return;
    const { index } = await this.#pfLink(address);
    try {
      await this.#setVf(index, vfIndex, { hardwareAddress });
    } catch (error) {
      if (isUnsupported(error)) return;
      throw await this.#explainFailure(address, [{ property: 'hardwareAddress', error }]);
    }
    await this.#assertEffect(address, { hardwareAddress }, {});
  }

  /**
   * Checks that a snapshot has the properties that a claim changes, so that they can be restored.
   * @throws SriovError `property-unsupported` for a property that the PF does not report, `vf-missing` if the PF has no
   * interface
   */
  async assertComplete(address: VfAddress, properties: readonly VfProperty[], before: VfChange): Promise<void> {
    if (address.pfAddress === undefined || properties.length === 0) return;
    await this.#pfLink(address);
    await this.#assertKnown(address, properties, before, before);
  }

  /**
   * Checks that the MAC which a VF keeps in user space is known, if its PF could set a MAC.
   * @throws UnknownVfStateError
   */
  async assertAddressKnown(address: VfAddress, before: VfChange): Promise<void> {
    const pf = await this.#findPf(address);
    if (pf === undefined || isInfiniBand(pf) || before.hardwareAddress !== undefined) return;
    throw await this.#unknownBefore(address, ['hardwareAddress']);
  }

  /**
   * Checks that a VF is restored, as its PF reports it.
   * @param changed settings of the claim: if the snapshot lacks one of them, it must have another value now
   * @param except properties to ignore
   * @throws SriovError `restore-incomplete` with the properties; UnknownVfStateError if the PF does not report the VF
   */
  async assertRestored(
    address: VfAddress,
    before: VfChange,
    changed: VfPropertiesWanted,
    except: ReadonlySet<string>,
  ): Promise<void> {
    if (address.pfAddress === undefined) return;
    const isLookedAt = (property: VfProperty) => !except.has(property);
    const remaining = (now: VfChange) => {
      const isOwn = before.hardwareAddress === noAddress && now.hardwareAddress !== changed.hardwareAddress;
      const differing = propertiesOf(difference(now, before)).filter((each) => each !== 'hardwareAddress' || !isOwn);
      return [...differing, ...leftBehind(changed, before, now)].filter(isLookedAt);
    };
    const asked = [...propertiesOf(before), ...propertiesOf(changed)].filter(isLookedAt);
    if (asked.length === 0) return;
    const { pf, now } = await this.#poll(address, (each) => remaining(each).length === 0);
    if (pf === undefined) throw missingPf(address);
    const properties = remaining(now);
    if (properties.length === 0) return;
    const lost = properties.filter((property) => !(property in before));
    const reasons = [
      ...(lost.length === 0 ? [] : [`the earlier value of ${lost.join(', ')} is not known`]),
      ...(lost.length === properties.length ? [] : ['the PF accepted the old values but reports others']),
    ];
    throw new SriovError('restore-incomplete', `${await this.#subjectOf(address)}: ${reasons.join('; ')}`, {
      device: address.pciAddress,
      properties,
      retriable: true,
      hint: `set ${properties.join(', ')} with "ip link set ${pf.name} vf ${address.vfIndex} …", or create the VFs of the PF anew`,
    });
  }

  async #findPf({ pfAddress }: VfAddress): Promise<Link | undefined> {
    return pfAddress === undefined ? undefined : await this.#options.links.find(pfAddress);
  }

  /** Returns the settings that a PF reports for a VF. @throws UnknownVfStateError */
  async #ask(address: VfAddress, pf: Link, isRecent = false): Promise<VfInfo> {
    const { pciAddress, pfAddress, vfIndex } = address;
    const place = { device: pciAddress, subject: `VF ${vfIndex} (${pciAddress})`, pf: `PF ${pf.name} (${pfAddress})` };
    const infos = await this.#lists.read(pf, place, isRecent);
    const info = infos.find((each) => each.vfIndex === vfIndex);
    // The list may be old: by now, the card may report the VF again.
    if (info === undefined && isRecent) return await this.#ask(address, pf);
    if (info === undefined) throw UnknownVfStateError.leftOut(place, infos.length === 0);
    return info;
  }

  async #infoNow(address: VfAddress): Promise<VfInfo | undefined> {
    const pf = await this.#findPf(address);
    if (pf === undefined) return undefined;
    try {
      const info = await this.#ask(address, pf, true);
      if (!isInfiniBand(pf)) return info;
      const { hardwareAddress: _truncated, ...rest } = info;
      return rest;
    } catch (error) {
      if (isInfiniBand(pf) && error instanceof UnknownVfStateError) return undefined;
      throw error;
    }
  }

  async #setVf(index: number, vfIndex: number, change: VfChange): Promise<void> {
    try {
      await this.#options.host.setVf(index, vfIndex, change);
    } finally {
      this.#lists.changed(index);
    }
  }

  /** Returns the PF, if it has an interface, and the properties that it reports for the VF. */
  async #poll(address: VfAddress, isDone: (now: VfChange) => boolean = () => true) {
    const ask = async () => {
      const pf = await this.#findPf(address);
      return { pf, now: pf === undefined ? {} : changeOf(await this.#ask(address, pf), pf) };
    };
    return await this.#lists.poll(address, ask, ({ pf, now }) => pf === undefined || isDone(now));
  }

  /** Checks that a change has had an effect: drivers report success even if the card's firmware ignores a change. */
  async #assertEffect(address: VfAddress, change: VfChange, before: VfChange): Promise<void> {
    if (propertiesOf(change).length === 0) return;
    const missing = (now: VfChange) => withoutEffect(change, before, now);
    const { now } = await this.#poll(address, (each) => missing(each).length === 0);
    const remaining = missing(now);
    // A VF that may choose its address can choose the same one again.
    const properties = remaining.filter((each) => each !== 'hardwareAddress' || change.hardwareAddress !== noAddress);
    if (properties.length === 0) return;
    const error = new NetdraError('no-effect', 'the PF accepted the value but reports another one', {
      retriable: true,
    });
    const failed = properties.map((property) => ({ property, error }));
    throw await this.#explainFailure(address, failed);
  }

  /** Checks that the changed properties are in the snapshot. @param now properties that the PF reports */
  async #assertKnown(
    address: VfAddress,
    properties: readonly VfProperty[],
    before: VfChange,
    now: VfChange,
  ): Promise<void> {
    const lacking = properties.filter((property) => !(property in before));
    if (lacking.length === 0) return;
    const unreported = lacking.filter((property) => !(property in now));
    if (unreported.length === 0) throw await this.#unknownBefore(address, lacking);
    const message = `${unreported.join(', ')} of ${await this.#subjectOf(address)} could not be restored: the card does not report it`;
    throw new SriovError('property-unsupported', message, {
      device: address.pciAddress,
      properties: unreported,
      retriable: true,
      hint: `leave ${fieldsOfAll(unreported)} out, or use a card that reports it`,
    });
  }

  async #unknownBefore(address: VfAddress, properties: readonly VfProperty[]): Promise<UnknownVfStateError> {
    const subject = await this.#subjectOf(address);
    const message = `${properties.join(', ')} of ${subject} could not be restored: the original state of the VF is not known`;
    return new UnknownVfStateError(message, {
      device: address.pciAddress,
      properties,
      hint: 'delete the pod and its claim, so that the VF is prepared anew',
    });
  }

  async #explainFailure(address: VfAddress, failed: readonly Failed[]): Promise<SriovError> {
    const first = failed.find(({ error }) => !isUnsupported(error)) ?? failed[0];
    const subject = await this.#subjectOf(address);
    const properties = failed.map(({ property }) => property);
    const details = { device: address.pciAddress, cause: first?.error, properties };
    if (!failed.every(({ error }) => isUnsupported(error))) {
      const retriable = first?.error instanceof NetdraError && first.error.retriable;
      const message = `cannot set ${properties.join(', ')} of ${subject}`;
      return new SriovError('property-refused', message, { ...details, retriable });
    }
    const hint = `leave ${fieldsOfAll(properties)} out, or use a card that can do it`;
    const message = `the card cannot set ${properties.join(', ')} of ${subject}`;
    return new SriovError('property-unsupported', message, { ...details, hint });
  }

  async #subjectOf(address: VfAddress): Promise<string> {
    const { pciAddress, pfAddress = '', vfIndex } = address;
    const { name } = await this.#pfLink(address);
    const driver = (await this.#options.binding.driverOf(pfAddress)) ?? 'none';
    return `VF ${vfIndex} (${pciAddress}) of PF ${name} (${pfAddress}, driver ${driver})`;
  }

  async #pfLink(address: VfAddress): Promise<Link> {
    const pf = await this.#findPf(address);
    if (pf !== undefined) return pf;
    throw missingPf(address);
  }
}

function fieldsOfAll(properties: readonly VfProperty[]): string {
  return properties.map((property) => fieldsOf[property]).join(', ');
}

/**
 * Returns the change that restores reported settings. Omits InfiniBand addresses, of which the PF reports only the beginning.
 */
function changeOf(info: VfInfo, pf: Link): VfChange {
  const { hardwareAddress, ...rest } = toChange(info);
  return hardwareAddress === undefined || isInfiniBand(pf) ? rest : { hardwareAddress, ...rest };
}

function isInfiniBand({ hardwareAddress }: Link): boolean {
  return hardwareAddress !== undefined && !isEthernetAddress(hardwareAddress);
}

function isUnsupported(error: unknown): boolean {
  return error instanceof NetlinkError && ['EOPNOTSUPP', 'ENOTSUP', 'EPROTONOSUPPORT'].includes(error.errno ?? '');
}
