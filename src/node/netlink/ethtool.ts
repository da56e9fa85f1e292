import { Protocol, putU32 } from 'netlink';
import { defined } from '../../lib/defined.ts';
import {
  type Attribute,
  Attributes,
  decodeString,
  encodeAttributes,
  encodeString,
  listAttributes,
} from './attributes.ts';
import { assertIndex } from './checks.ts';
import { isAdapted, setCoalescing } from './coalescing.ts';
import { decodeAnswer, NetlinkError, type RequestSubject } from './errors.ts';
import { kernelFeatures } from './ethtool-features.ts';
import type { NetnsHandle } from './netns.ts';
import { RequestSocket } from './socket.ts';

/** Values by their names in the kernel's documentation. Switches are booleans. */
export type EthtoolValues = Record<string, number | boolean>;

/** Groups of settings. ethtool shows them with `-k`, `--show-priv-flags`, `-g`, `-l`, `-c` and `-a`, in this order. */
export type EthtoolGroup = 'features' | 'privateFlags' | 'rings' | 'channels' | 'coalescing' | 'pause';

/**
 * Settings of a link that its driver applies. A group that the driver does not support is absent. Features are the changeable
 * ones with their requested values, from which the effective values follow.
 */
export type EthtoolState = Partial<Record<EthtoolGroup, EthtoolValues>>;

/** Access to ethtool in one network namespace, for saving and restoring settings. */
export type LinkEthtool = Pick<EthtoolConnection, 'read' | 'set'>;

/** Access to ethtool in one network namespace, for settings that a claim requests. */
export type LinkTuning = Pick<EthtoolConnection, 'apply' | 'effective'>;

/** `GENL_ID_CTRL`, `CTRL_CMD_GETFAMILY`, `CTRL_ATTR_FAMILY_*` of Linux `genetlink.h`. */
const control = { type: 16, getFamily: 3, familyId: 1, familyName: 2 } as const;
/** Size of `struct genlmsghdr`, in bytes. */
const headerBytes = 4;
const version = 1;
/** `ETHTOOL_A_*_HEADER`, the first attribute of each message, and `ETHTOOL_A_HEADER_DEV_INDEX`. */
const headerType = 1;
const deviceIndexType = 1;
/** `ETHTOOL_A_BITSET_*`, `ETHTOOL_A_BITSET_BITS_BIT`, `ETHTOOL_A_BITSET_BIT_*`. */
const Bitset = { noMask: 1, bits: 3, bit: 1, name: 2, value: 3 } as const;
/** `ETHTOOL_A_FEATURES_*`, `ETHTOOL_A_PRIVFLAGS_FLAGS`. */
const Features = { changeable: 2, wanted: 3, active: 4 } as const;
const privateFlagsType = 2;

interface Group {
  /** Message type `ETHTOOL_MSG_*_GET`; `ETHTOOL_MSG_*_SET` is the next number. */
  get: number;
  /** Attributes that can be set; empty if the group is a bit set. A switch has one byte, most other values have four. */
  values: { name: string; type: number; isSwitch: boolean; isByte: boolean }[];
}

/**
 * Returns attributes with consecutive numbers. @param names names in order; the names of switches end with `?`, of one-byte
 * numbers with `#`
 */
function attributesFrom(firstType: number, names: string): Group['values'] {
  return names.split(/\s+/).map((name, index) => {
    const [isSwitch, isByte] = [name.endsWith('?'), /[?#]$/.test(name)];
    return { name: name.replace(/[?#]$/, ''), type: firstType + index, isSwitch, isByte };
  });
}

/** Groups of Linux `ethtool_netlink.h`. The kernel's networking/ethtool-netlink.rst describes each value. */
const groups: Readonly<Record<EthtoolGroup, Group>> = {
  features: { get: 11, values: [] },
  privateFlags: { get: 13, values: [] },
  rings: {
    get: 15,
    values: attributesFrom(6, 'rx rxMini rxJumbo tx rxBufLen tcpDataSplit# cqeSize txPush? rxPush? txPushBufLen'),
  },
  channels: { get: 17, values: attributesFrom(6, 'rx tx other combined') },
  coalescing: {
    get: 19,
    values: attributesFrom(
      2,
      `rxUsecs rxMaxFrames rxUsecsIrq rxMaxFramesIrq txUsecs txMaxFrames txUsecsIrq txMaxFramesIrq
       statsBlockUsecs useAdaptiveRx? useAdaptiveTx? pktRateLow rxUsecsLow rxMaxFramesLow txUsecsLow txMaxFramesLow
       pktRateHigh rxUsecsHigh rxMaxFramesHigh txUsecsHigh txMaxFramesHigh rateSampleInterval useCqeModeTx?
       useCqeModeRx? txAggrMaxBytes txAggrMaxFrames txAggrTimeUsecs`,
    ),
  },
  pause: { get: 21, values: attributesFrom(2, 'autoneg? rx? tx?') },
};
const groupNames = Object.keys(groups) as EthtoolGroup[];

/** Errors of a driver that does not support a group, or not in its present state. */
const unsupported = ['EOPNOTSUPP', 'ENOTSUP'];

/** Access to ethtool over generic netlink. Linux 5.6 and later support all groups, except for some values. */
export class EthtoolConnection implements Disposable {
  readonly #socket: RequestSocket;
  readonly #netnsPath: string | undefined;
  /** ID of the ethtool family, which the kernel chooses when it registers the family. Read once. */
  #familyId: number | undefined;

  constructor(socket: RequestSocket, netnsPath?: string) {
    this.#socket = socket;
    this.#netnsPath = netnsPath;
  }

  /**
   * Opens a connection. @param netns default: the process's own namespace
   * @throws NetlinkError `netns-refused`
   */
  static open(netns?: NetnsHandle): EthtoolConnection {
    return new EthtoolConnection(RequestSocket.open(Protocol.GENERIC, netns), netns?.path);
  }

  /** Reads the settings of a link. @throws NetlinkError `netlink-refused` with `ENODEV` if the link is gone */
  async read(index: number): Promise<EthtoolState> {
    assertIndex(index);
    this.#familyId ??= await this.#readFamilyId(this.#subject('read settings of link', index));
    const found = await Promise.all(
      groupNames.map(async (name) => [name, await this.#readGroup(index, name)] as const),
    );
    return Object.fromEntries(found.filter(([, values]) => Object.keys(values ?? {}).length > 0));
  }

  /**
   * Reads the effective values of a group, including features that cannot be changed. The result is empty if the driver does
   * not support the group.
   * @throws NetlinkError `netlink-refused` with `ENODEV` if the link is gone
   */
  async effective(index: number, group: EthtoolGroup): Promise<EthtoolValues> {
    return (await this.#readGroup(index, group, true)) ?? {};
  }

  /**
   * Sets values that are not in effect, and checks that the driver has taken each of them: a driver may leave a feature off
   * although the kernel accepts the request, or round a size.
   * @throws NetlinkError `netlink-refused` with the names that the driver lacks or has not taken
   */
  async apply(index: number, group: EthtoolGroup, values: EthtoolValues): Promise<void> {
    const subject = this.#subject(`set ${group} of link`, index);
    const before = await this.effective(index, group);
    const lacking = Object.keys(values).filter((name) => !Object.hasOwn(before, name));
    if (lacking.length > 0) throw refusedBy(subject, `the driver has no ${lacking.map(describeLacking).join(', no ')}`);
    if (othersIn(before, values).length === 0) return;
    const read = () => this.effective(index, group);
    const set = (some: EthtoolValues) => this.set(index, group, some);
    await (group === 'coalescing' ? setCoalescing({ read, set }, before, values) : set(values));
    const after = await this.effective(index, group);
    const others = othersIn(after, values).map((name) => `${name} to ${values[name]}: it is still ${after[name]}`);
    if (others.length > 0) throw refusedBy(subject, `the driver did not set ${others.join(', ')}`);
  }

  /** Sets values. Other values stay unchanged. @throws NetlinkError `netlink-refused` */
  async set(index: number, group: EthtoolGroup, values: EthtoolValues): Promise<void> {
    const subject = this.#subject(`set ${group} (${Object.keys(values).join(', ')}) of link`, index);
    await this.#request(groups[group].get + 1, index, encodeValues(group, values), subject);
  }

  [Symbol.dispose](): void {
    this.#socket[Symbol.dispose]();
  }

  async #readGroup(index: number, group: EthtoolGroup, inEffect = false): Promise<EthtoolValues | undefined> {
    const subject = this.#subject(`read ${group} of link`, index);
    const [message] = await this.#request(groups[group].get, index, [], subject, unsupported);
    return message === undefined ? undefined : decodeAnswer(() => decodeValues(group, message, inEffect), subject);
  }

  /** Sends a request about a link. @returns the attributes of each message of the answer */
  async #request(
    command: number,
    index: number,
    attributes: Attribute[],
    subject: RequestSubject,
    absent: readonly string[] = [],
  ): Promise<Buffer[]> {
    assertIndex(index);
    this.#familyId ??= await this.#readFamilyId(subject);
    const type = this.#familyId;
    const header = { type: headerType, value: [{ type: deviceIndexType, value: putU32(index) }] };
    const payload = [Buffer.of(command, version, 0, 0), ...encodeAttributes([header, ...attributes])];
    const messages = await this.#socket.request({ type, payload, absent }, subject);
    return messages.filter((message) => message.type === type).map(({ data }) => data.subarray(headerBytes));
  }

  async #readFamilyId(subject: RequestSubject): Promise<number> {
    const name = { type: control.familyName, value: encodeString('ethtool') };
    const payload = [Buffer.of(control.getFamily, version, 0, 0), ...encodeAttributes([name])];
    const [message] = await this.#socket.request({ type: control.type, payload }, subject);
    return decodeAnswer(() => {
      const attributes = new Attributes(message?.data.subarray(headerBytes) ?? Buffer.alloc(0));
      const id = attributes.get(control.familyId);
      if (id === undefined) throw new RangeError('the ethtool family has no number');
      return id.readUInt16LE();
    }, subject);
  }

  #subject(operation: string, index: number): RequestSubject {
    return { operation, interfaceName: `#${index}`, netns: this.#netnsPath };
  }
}

/**
 * Returns the names whose values differ from the wanted ones, except for numbers that the driver itself chooses in its mode.
 */
export function othersIn(found: EthtoolValues, wanted: EthtoolValues): string[] {
  return Object.keys(wanted).filter((name) => found[name] !== wanted[name] && !isAdapted(name, wanted));
}

function refusedBy({ operation, interfaceName, netns }: RequestSubject, reason: string): NetlinkError {
  const hint = 'ethtool -k, --show-priv-flags, -g and -l show what the driver has';
  const details = { operation, interfaceName, hint, ...defined({ netns }) };
  return new NetlinkError('netlink-refused', `cannot ${operation} ${interfaceName}: ${reason}`, details);
}

function describeLacking(name: string): string {
  const features = kernelFeatures(name);
  return features.length === 0 ? name : `${name}, which the kernel calls ${features.join(' and ')}`;
}

/**
 * Decodes the values of a group.
 * @param message attributes of the answer
 * @param inEffect whether to return the effective values of all features, or the requested values of the changeable ones
 * @throws RangeError if the message is too short
 */
export function decodeValues(group: EthtoolGroup, message: Buffer, inEffect = false): EthtoolValues {
  const attributes = new Attributes(message);
  if (group === 'features') {
    // The bitset lists all features; those that can be changed are set.
    const changeable = decodeBitset(attributes.get(Features.changeable));
    const on = decodeBitset(attributes.get(inEffect ? Features.active : Features.wanted));
    const names = [...changeable].filter(([, canChange]) => inEffect || canChange).map(([name]) => name);
    return Object.fromEntries(names.map((name) => [name, on.get(name) === true]));
  }
  if (group === 'privateFlags') return Object.fromEntries(decodeBitset(attributes.get(privateFlagsType)));
  return Object.fromEntries(
    groups[group].values.flatMap(({ name, type, isSwitch }) => {
      const data = attributes.get(type);
      const value = data?.readUIntLE(0, Math.min(data.length, 4));
      return value === undefined ? [] : [[name, isSwitch ? value !== 0 : value]];
    }),
  );
}

export function encodeValues(group: EthtoolGroup, values: EthtoolValues): Attribute[] {
  if (group === 'features') return [{ type: Features.wanted, value: encodeBitset(values) }];
  if (group === 'privateFlags') return [{ type: privateFlagsType, value: encodeBitset(values) }];
  return groups[group].values.flatMap(({ name, type, isByte }): Attribute[] => {
    const value = values[name];
    if (value === undefined) return [];
    return [{ type, value: isByte ? Buffer.of(Number(value)) : putU32(Number(value)) }];
  });
}

/** Recently decoded bitsets, by their bytes. VFs of one kind have equal bitsets, each with the names of some sixty features. */
const knownBitsets = new Map<string, ReadonlyMap<string, boolean>>();
const mostKnownBitsets = 32;

/** Decodes a bitset with bits by name, which is not the compact form. */
function decodeBitset(data: Buffer = Buffer.alloc(0)): ReadonlyMap<string, boolean> {
  const bytes = data.toString('latin1');
  const known = knownBitsets.get(bytes);
  if (known !== undefined) return known;
  if (knownBitsets.size === mostKnownBitsets) knownBitsets.clear();
  const bits = listBits(data);
  knownBitsets.set(bytes, bits);
  return bits;
}

function listBits(data: Buffer): Map<string, boolean> {
  const bits = new Map<string, boolean>();
  const attributes = new Attributes(data);
  // A bitset without a mask lists only the bits that are set, without values.
  const isList = attributes.has(Bitset.noMask);
  for (const { data: bit } of listAttributes(attributes.get(Bitset.bits) ?? Buffer.alloc(0))) {
    const parts = new Attributes(bit);
    const name = decodeString(parts.get(Bitset.name));
    if (name !== undefined) bits.set(name, isList || parts.has(Bitset.value));
  }
  return bits;
}

function encodeBitset(values: EthtoolValues): Attribute[] {
  const bits = Object.entries(values).map(([name, value]) => {
    const parts: Attribute[] = [{ type: Bitset.name, value: encodeString(name) }];
    if (value) parts.push({ type: Bitset.value, value: Buffer.alloc(0) });
    return { type: Bitset.bit, value: parts };
  });
  return [{ type: Bitset.bits, value: bits }];
}
