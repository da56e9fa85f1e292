import type { Address, EthtoolValues, Link, QdiscPlace, RouteSpec } from '../../src/node/netlink/index.ts';
import type { LinkFlag, LinkMode, XdpMode } from '../../src/node/netlink/link.ts';

/** A process's reference to a namespace: while one exists, the namespace lives. */
export type Reference = object;

export interface LinkSpec {
  name: string;
  hardwareAddress: string;
  mtuBytes?: number;
  up?: boolean;
  altNames?: string[];
  alias?: string;
  kind?: string;
  /** Of a VRF: the routing table of its members. */
  vrfTable?: number;
  /** PCI address, for hardware. */
  parentDevice?: string;
  /** What its driver takes; absent: anything. */
  mtuLimits?: { minMtuBytes: number; maxMtuBytes: number };
}

/** A network interface. */
export class SimLink {
  namespace: Namespace;
  index = 0;
  name: string;
  hardwareAddress: string;
  mtuBytes: number;
  up: boolean;
  altNames: string[];
  alias: string;
  readonly kind: string | undefined;
  readonly vrfTable: number | undefined;
  readonly parentDevice: string | undefined;
  readonly mtuLimits: LinkSpec['mtuLimits'];
  flags: LinkFlag[] = ['multicast'];
  linkMode: LinkMode = 'default';
  broadcastAddress = 'ff:ff:ff:ff:ff:ff';
  group = 0;
  txQueueLength = 1000;
  /** Lengths of its rings, for ethtool. */
  rings: EthtoolValues = { rx: 256, tx: 256 };
  xdp: XdpMode[] = [];
  readonly qdiscs: Partial<Record<QdiscPlace, string>> = {};
  readonly addresses = new Map<string, Omit<Address, 'index'>>();
  routes: RouteSpec[] = [];
  /** Messages of its neighbors, by what identifies them. */
  readonly neighbors = new Map<string, Buffer>();
  /** Those that were set, by key. */
  readonly sysctls = new Map<string, string>();
  master: SimLink | undefined;
  /** Of a bond: the member that it sends and receives by. */
  active: SimLink | undefined;
  /** The other end of a veth pair. */
  peer: SimLink | undefined;
  isGone = false;
  /** When duplicate address detection has last ended for one of its addresses. */
  readyAtMs = Number.NEGATIVE_INFINITY;
  /** Of a card's port. */
  hasCable = true;
  /** Of a port of a bond in mode 802.3ad. */
  hasPartner: boolean | undefined;
  /** Set if the PF has assigned the VF an address: it can have no other then. */
  adminAddress: (() => string | undefined) | undefined;

  constructor(namespace: Namespace, spec: LinkSpec) {
    const { name, hardwareAddress, mtuBytes = 1500, up = false, altNames = [], alias = '', kind, parentDevice } = spec;
    this.mtuLimits = spec.mtuLimits;
    this.namespace = namespace;
    this.name = name;
    this.hardwareAddress = hardwareAddress;
    this.mtuBytes = mtuBytes;
    this.up = up;
    this.altNames = [...altNames];
    this.alias = alias;
    this.kind = kind;
    this.vrfTable = spec.vrfTable;
    this.parentDevice = parentDevice;
  }

  /** What a container uses of it: a bond, if it is a member of one. */
  get used(): SimLink {
    return this.master?.kind === 'bond' ? this.master : this;
  }

  /** The VRF that it, or its bond, is in. */
  get vrf(): SimLink | undefined {
    const { master } = this.used;
    return master?.kind === 'vrf' ? master : undefined;
  }

  /** The netlink view of the link. */
  view(): Link {
    const { index, name, hardwareAddress, mtuBytes, up, kind, parentDevice, alias, peer, master } = this;
    return {
      index,
      name,
      hardwareAddress,
      mtuBytes,
      ...this.mtuLimits,
      up,
      carrier: up && this.hasCable,
      altNames: [...this.altNames],
      flags: [...this.flags].sort(),
      linkMode: this.linkMode,
      broadcastAddress: this.broadcastAddress,
      group: this.group,
      txQueueLength: this.txQueueLength,
      ...(alias === '' ? {} : { alias }),
      ...(kind === undefined ? {} : { kind }),
      ...(this.vrfTable === undefined ? {} : { vrfTable: this.vrfTable }),
      ...(parentDevice === undefined ? {} : { parentDevice }),
      ...(master === undefined ? {} : { master: master.index }),
      ...(master?.kind === 'bond' ? { isActiveMember: master.active === this && this.hasCable } : {}),
      ...(peer === undefined ? {} : { lower: peer.index }),
      ...(peer === undefined || peer.namespace === this.namespace ? {} : { lowerNetnsId: peer.namespace.id }),
      ...(this.xdp.length === 0 ? {} : { xdp: [...this.xdp] }),
      ...(this.hasPartner === undefined ? {} : { lacpPartnerInSync: this.hasPartner }),
    };
  }
}

/** A network namespace. */
export class Namespace {
  readonly id: number;
  readonly isHost: boolean;
  readonly links: SimLink[] = [];
  readonly references = new Set<Reference>();
  readonly watchers = new Set<() => void>();
  /** The kernel has begun to tear it down. */
  isDying = false;
  nextIndex = 1;
  /** Messages of its rules, by what identifies them. */
  readonly rules = new Map<string, Buffer>();
  /** The sandbox for which it was created. */
  owner: string | undefined;

  constructor(id: number, isHost: boolean) {
    this.id = id;
    this.isHost = isHost;
  }

  byName(name: string): SimLink | undefined {
    return this.links.find((link) => link.name === name || link.altNames.includes(name));
  }

  byIndex(index: number): SimLink | undefined {
    return this.links.find((link) => link.index === index);
  }

  changed(): void {
    for (const watcher of this.watchers) watcher();
  }
}
