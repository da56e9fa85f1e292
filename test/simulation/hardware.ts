import { refused } from '../../src/node/netlink/errors.ts';
import { NetlinkError, type VfChange, type VfInfo } from '../../src/node/netlink/index.ts';
import { hasNoInterface } from '../../src/node/sriov/driver-binding.ts';
import type { SimClaim } from './api-server.ts';
import type { Kernel } from './kernel.ts';
import type { LinkSpec, SimLink } from './links.ts';
import type { Simulator } from './simulator.ts';
import { changeSettings, defaultVfSettings, type VfSettings, viewOfSettings } from './vf-settings.ts';

/** A VF of the simulated card. */
export interface SimVf {
  pciAddress: string;
  pf: SimPf;
  /** Name in its ResourceSlice. */
  name: string;
  vfIndex: number;
  /** Its default kernel driver. */
  ownDriver: string;
  driver: string | undefined;
  override: string | undefined;
  settings: VfSettings;
  link: SimLink | undefined;
  /** Properties of its interface when its driver is bound. */
  fresh: LinkSpec;
  /** Its driver is bound, and the interface is still to appear. */
  binding: object | undefined;
  /** The address that the driver read when it was bound. */
  learnt: string | undefined;
  /** Without a driver: the address that it had last, which its PF may still tell. */
  told: string | undefined;
  /** The card was reset since the start. */
  wasReset: boolean;
  /** The node has booted since then: it is as its driver makes it. */
  wasBooted: boolean;
  /** While it is being reset its PF does not report it, as with ice. */
  isReportedFromMs: number;
}

/** All properties of a VF that a claim, a pod or a plugin may change. */
export interface VfState {
  driver: string | undefined;
  override: string | undefined;
  settings: VfSettings;
  link: object | undefined;
}

export interface SimPf {
  pciAddress: string;
  link: SimLink;
}

/** What distinguishes one card from another. */
export interface CardModel {
  /** The interface of the PF with this number, from 1. */
  pf: (number: number) => LinkSpec & { parentDevice: string };
  vfAddress: (vfIndex: number) => string;
  /** The kernel's driver of its VFs. */
  driver: string;
  /** A VF's interface each time its driver is bound. @param linkIndex the index that it will have */
  link: (vfIndex: number, linkIndex: number) => LinkSpec;
  settings: () => VfSettings;
  /** Whether the PF reports the address that a VF has chosen itself as administrative, like igb. */
  tellsOwnAddresses: boolean;
}

const e810: CardModel = {
  pf: (number) => ({
    name: `ens${number}`,
    hardwareAddress: `3c:fd:fe:00:00:0${number - 1}`,
    mtuBytes: 9000,
    up: true,
    parentDevice: `0000:0${number}:00.0`,
  }),
  vfAddress: (vfIndex) => `0000:01:${octet(2 + Math.floor(vfIndex / 8))}.${vfIndex % 8}`,
  driver: 'iavf',
  link: (vfIndex) => ({ name: `ens1v${vfIndex}`, hardwareAddress: `3c:fd:fe:00:02:${octet(vfIndex)}` }),
  settings: defaultVfSettings,
  tellsOwnAddresses: false,
};

function octet(value: number): string {
  return value.toString(16).padStart(2, '0');
}

export interface HardwareOptions {
  kernel: Kernel;
  simulator: Simulator;
  count: number;
  /** See `Plan`. */
  writesInVain?: number | undefined;
  /** The VFs belong to them by turns. */
  pfs: 1 | 2;
  /** Default: one that is like an Intel E810. */
  model?: CardModel;
}

/** A card with VFs: PCI functions, their drivers, and the PF's settings for each. */
export class Hardware {
  readonly vfs: SimVf[] = [];
  readonly pfs: [SimPf, ...SimPf[]];
  readonly #kernel: Kernel;
  readonly #simulator: Simulator;
  readonly #model: CardModel;
  #found: string[] = [];
  /** What the VFs are after a boot. */
  readonly #fresh: string[] = [];
  /** VFs that are not switched on. */
  #absent: SimVf[] = [];
  #writesInVain: number;
  /** Until then about half of all changes through the PF are refused. */
  refusesUntilMs = 0;
  /** Until then interfaces appear some time after their driver is bound. */
  lateUntilMs = 0;

  constructor({ kernel, simulator, count, pfs, writesInVain, model = e810 }: HardwareOptions) {
    this.#kernel = kernel;
    this.#simulator = simulator;
    this.#model = model;
    const { host } = kernel;
    const addPf = (number: number): SimPf => {
      const spec = model.pf(number);
      return { pciAddress: spec.parentDevice, link: kernel.addLink(host, spec) };
    };
    this.pfs = pfs === 1 ? [addPf(1)] : [addPf(1), addPf(2)];
    const { tape } = simulator;
    for (let vfIndex = 0; vfIndex < count; vfIndex++) {
      const settings = model.settings();
      if (tape.chance(0.2)) settings.hardwareAddress = `3c:fd:fe:00:01:${octet(vfIndex)}`;
      if (tape.chance(0.2)) settings.vlan = { id: 7, priority: 0 };
      const pciAddress = model.vfAddress(vfIndex);
      const name = pciAddress.replaceAll(/[:.]/g, '-');
      const vf: SimVf = {
        pciAddress,
        pf: this.pfs[vfIndex % pfs] ?? this.pfs[0],
        name,
        vfIndex,
        ownDriver: model.driver,
        driver: undefined,
        override: undefined,
        settings,
        link: undefined,
        fresh: model.link(vfIndex, host.nextIndex),
        binding: undefined,
        learnt: undefined,
        told: undefined,
        wasReset: false,
        wasBooted: false,
        isReportedFromMs: 0,
      };
      this.vfs.push(vf);
      this.bind(vf, vf.ownDriver);
      const { link } = vf;
      this.#fresh.push(JSON.stringify(this.#freshStateOf(vf)));
      if (link !== undefined) {
        if (tape.chance(0.3)) link.altNames.push(`enp1s2f${vfIndex}`);
        if (tape.chance(0.3)) link.mtuBytes = 9000;
        if (tape.chance(0.3)) link.up = true;
      }
    }
    this.#writesInVain = writesInVain ?? 0;
    if (writesInVain !== undefined) {
      for (const vf of this.vfs) this.unbind(vf);
      this.#absent = this.vfs.splice(0);
    }
    this.#found = this.vfs.map((vf) => JSON.stringify(this.stateOf(vf)));
  }

  get isOff(): boolean {
    return this.#absent.length > 0;
  }

  /** What a write to `sriov_numvfs` does. */
  switchOn(): void {
    if (this.#writesInVain-- > 0) {
      this.#simulator.trace('card', 'makes no VFs');
      return;
    }
    for (const vf of this.#absent.splice(0)) {
      this.vfs.push(vf);
      vf.driver = vf.ownDriver;
      this.#addLink(vf);
    }
    this.#found = this.vfs.map((vf) => JSON.stringify(this.stateOf(vf)));
  }

  find(pciAddress: string): SimVf | undefined {
    return this.vfs.find((vf) => vf.pciAddress === pciAddress);
  }

  pfOf(pciAddress: string): SimPf | undefined {
    return this.pfs.find((pf) => pf.pciAddress === pciAddress);
  }

  /** The VFs that a claim has for itself. */
  allocatedTo({ devices }: Pick<SimClaim, 'devices'>): SimVf[] {
    const names = devices.flatMap(({ device, adminAccess }) => (adminAccess ? [] : [device]));
    return this.vfs.filter(({ name }) => names.includes(name));
  }

  /** Differences from the VF's initial state, or if the card was reset since, from what the reset has made of it. */
  changesOf(vf: SimVf): string[] {
    const now = JSON.stringify(this.stateOf(vf));
    const [found = '{}', fresh = '{}'] = [this.#found[vf.vfIndex], this.#fresh[vf.vfIndex]];
    const usual = vf.wasBooted ? fresh : found;
    if (now === usual) return [];
    const changes = differences(JSON.parse(usual), JSON.parse(now), '');
    if (!vf.wasReset) return [...changes.values()];
    // What a reset has undone before its claim was unprepared is restored, or not, by property.
    const others = differences(JSON.parse(fresh), JSON.parse(now), '');
    return [...changes].flatMap(([path, change]) => (others.has(path) ? change : []));
  }

  /** As it was before the first pod. */
  foundStateOf(vf: SimVf): { driver?: string; link?: Pick<SimLink, 'hardwareAddress' | 'mtuBytes'> } {
    return JSON.parse(this.#found[vf.vfIndex] ?? '{}');
  }

  #freshStateOf(vf: SimVf): VfState {
    const { link, ...state } = this.stateOf({ ...vf, settings: defaultVfSettings() });
    return { ...state, link: link && { ...link, hardwareAddress: vf.fresh.hardwareAddress } };
  }

  stateOf(vf: SimVf): VfState {
    const { driver, override, settings, link } = vf;
    if (link === undefined) return { driver, override, settings, link: undefined };
    // Only a cable changes its carrier.
    const { index: _index, carrier: _carrier, ...view } = link.view();
    const addresses = [...link.addresses.keys()].sort();
    const { namespace } = link;
    const place = namespace.isHost ? 'host' : `${namespace.owner}`;
    const qdiscs = link.qdiscs;
    return { driver, override, settings, link: { ...view, altNames: view.altNames.sort(), addresses, qdiscs, place } };
  }

  /**
   * Someone pulls the cable of the first PF, or plugs it in again.
   * @returns the ids of the sandboxes in which a bond now uses another member
   */
  setCable(isPlugged: boolean): string[] {
    const [pf] = this.pfs;
    this.#simulator.trace('card', isPlugged ? 'has a cable' : 'has no cable');
    const links = this.vfs.flatMap((vf) => (vf.pf === pf && vf.link !== undefined ? vf.link : []));
    const failedOver = [pf.link, ...links].filter((link) => this.#kernel.setCable(link, isPlugged));
    return failedOver.map(({ namespace }) => namespace.owner ?? '');
  }

  /** The first PF becomes the port of a bond, or its partner is lost or back. */
  setPartner(hasPartner: boolean): void {
    this.pfs[0].link.hasPartner = hasPartner;
  }

  /** A reset of the PF: its VFs are recreated, in the host's namespace, as if they had never been changed. */
  reset(): void {
    this.#simulator.trace('card', 'is reset');
    for (const vf of this.vfs) {
      vf.settings = defaultVfSettings();
      vf.wasReset = true;
      if (vf.link !== undefined) this.#kernel.removeLink(vf.link);
      vf.link = undefined;
      vf.driver = undefined;
      vf.binding = undefined;
      vf.override = undefined;
    }
    // Only after all old interfaces are removed, so that the names of the new ones are free.
    for (const vf of this.vfs) this.bind(vf, vf.ownDriver);
  }

  unbind(vf: SimVf, by?: string): void {
    vf.told = vf.link?.hardwareAddress;
    if (vf.link !== undefined) this.#kernel.removeLink(vf.link, by);
    vf.link = undefined;
    vf.driver = undefined;
    vf.binding = undefined;
  }

  /** Binds a driver, which resets the function and creates an interface unless it is a driver without any. */
  bind(vf: SimVf, driver: string): void {
    const { tape, nowMs } = this.#simulator;
    if (tape.chance(0.1, 'card')) vf.isReportedFromMs = nowMs + 4_000 * tape.fraction('card');
    vf.driver = driver;
    vf.learnt = vf.settings.hardwareAddress;
    vf.told = undefined;
    if (hasNoInterface(driver)) return;
    if (nowMs >= this.lateUntilMs) {
      this.#addLink(vf);
      return;
    }
    const binding = {};
    vf.binding = binding;
    this.#simulator.schedule(3_000 * tape.fraction('card'), undefined, 'interface appears', () => {
      if (vf.binding === binding) this.#addLink(vf);
    });
  }

  #addLink(vf: SimVf): void {
    const { host } = this.#kernel;
    vf.fresh = this.#model.link(vf.vfIndex, host.nextIndex);
    const hardwareAddress = vf.learnt ?? vf.fresh.hardwareAddress;
    vf.link = this.#kernel.addLink(host, { ...vf.fresh, hardwareAddress, parentDevice: vf.pciAddress });
    vf.link.hasCable = vf.pf.link.hasCable;
    vf.link.adminAddress = () => (vf.settings.trust ? undefined : vf.settings.hardwareAddress);
  }

  vfInfos(pfIndex: number): VfInfo[] {
    const reported = this.vfs.filter(({ pf, isReportedFromMs }) => {
      return pf.link.index === pfIndex && isReportedFromMs <= this.#simulator.nowMs;
    });
    return reported.map((vf) => this.info(vf));
  }

  /** What the PF reports of a VF. */
  info({ vfIndex, settings, link, told }: SimVf): VfInfo {
    const view = viewOfSettings(vfIndex, settings);
    const own = this.#model.tellsOwnAddresses ? (link?.hardwareAddress ?? told) : undefined;
    return own === undefined || view.hardwareAddress !== undefined ? view : { ...view, hardwareAddress: own };
  }

  setVf(pfIndex: number, vfIndex: number, change: VfChange): void {
    const vf = this.vfs[vfIndex];
    if (vf === undefined || pfIndex !== vf.pf.link.index) {
      throw new NetlinkError('netlink-refused', 'no such VF', { errno: 'EINVAL' });
    }
    const { minMbps = 0, maxMbps = 0 } = change.rate ?? {};
    // As rtnl_set_vf_rate of the kernel; a maximum of 0 is none.
    if (maxMbps > 0 && maxMbps < minMbps) {
      throw new NetlinkError('netlink-refused', 'minimum rate above the maximum', { errno: 'EINVAL' });
    }
    const { tape, nowMs } = this.#simulator;
    if (nowMs < this.refusesUntilMs && tape.chance(0.5, 'card')) {
      const [errno, name] = tape.pick<[number, string]>(
        [
          [16, 'EBUSY'],
          [11, 'EAGAIN'],
          [95, 'EOPNOTSUPP'],
        ],
        'card',
      );
      this.#simulator.trace('card', `refuses with ${name}`);
      throw refused(-errno, { operation: 'change VF' });
    }
    changeSettings(vf.settings, change);
  }
}

/** By path of the property. */
function differences(found: unknown, now: unknown, path: string): Map<string, string> {
  if (typeof found === 'object' && found !== null && typeof now === 'object' && now !== null) {
    const keys = new Set([...Object.keys(found), ...Object.keys(now)]);
    return new Map(
      [...keys].flatMap((key) => [
        ...differences(
          (found as Record<string, unknown>)[key],
          (now as Record<string, unknown>)[key],
          path === '' ? key : `${path}.${key}`,
        ),
      ]),
    );
  }
  return new Map(found === now ? [] : [[path, `${path} is ${JSON.stringify(now)}, was ${JSON.stringify(found)}`]]);
}
