import { type Clock, systemClock } from '../../lib/clock.ts';
import { type Link, NetlinkError, type RtnlConnection } from '../netlink/index.ts';
import { SriovError } from './errors.ts';
import { writeFileTree } from './file-tree.ts';
import {
  isSimulatedPeer,
  isSimulatedPf,
  planSimulation,
  type SimulatedPf,
  type SimulatedVf,
  type SimulationPlan,
  simulatedSysfs,
} from './simulated-layout.ts';
import { Sysfs } from './sysfs.ts';

export interface SimulatedNicOptions extends SimulationPlan {
  /** Directory for the sysfs tree, which contains nothing else. */
  dir: string;
  /** Netlink connection in the namespace that acts as the host. */
  connection: Pick<RtnlConnection, 'links' | 'link' | 'createBridge' | 'createVeth' | 'deleteLink' | 'setLink'>;
  clock?: Clock;
}

// The MTU is large, so that the MTU of a VF can be chosen as freely as with hardware.
const switchMtuBytes = 9216;
/** Time for an unused namespace to disappear together with the VF in it, ms. */
const netnsTeardownMs = 1_000;
const pollMs = 50;

/** Place of a VF. `here` is the network namespace that acts as the host. */
export type VfPlace = 'here' | 'elsewhere';

/**
 * Network cards without hardware: a bridge for each PF, a veth pair for each VF (one end is the VF, the other end stays in
 * the bridge), and a tree that looks like sysfs. After a restart, everything is found again, including VFs in pods.
 * Everything stays when the driver stops.
 */
export class SimulatedNic {
  /** Reader of the simulated cards, the same as for real cards. */
  readonly sysfs: Sysfs;
  readonly #options: SimulatedNicOptions;
  readonly #clock: Clock;
  readonly #pfs: SimulatedPf[];

  /** @throws SriovError `simulation-invalid` */
  constructor(options: SimulatedNicOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#pfs = planSimulation(options);
    this.sysfs = new Sysfs(options.dir);
  }

  /**
   * Creates everything that is missing. Removes pairs of an earlier, larger simulation unless they are in a pod.
   * @throws SriovError `simulation-name-taken`; NetlinkError; Node.js errors of the directory
   */
  async start(): Promise<void> {
    const links = await this.#options.connection.links();
    await this.#removeSurplus(links);
    for (const pf of this.#pfs) {
      const bridge = await this.#ensureBridge(pf, links);
      for (const vf of pf.vfs) await this.#ensurePair(vf, bridge, links);
    }
    writeFileTree(this.#options.dir, simulatedSysfs(this.#pfs));
  }

  /**
   * Makes sure that a VF has a link, here or in a pod: a pair disappears with the namespace of either end. If the link is
   * elsewhere, waits for that namespace to end, since an ending namespace cannot be distinguished from a living one.
   * @param withinMs time limit, ms; default: 1 s
   * @returns place of the link afterwards
   * @throws SriovError `vf-missing` if it is not a simulated VF, `simulation-name-taken`; NetlinkError
   */
  async ensureVf(pciAddress: string, withinMs = netnsTeardownMs): Promise<VfPlace> {
    const { pf, vf } = this.#find(pciAddress);
    const endsAt = this.#clock.nowMs() + withinMs;
    while (true) {
      const links = await this.#linksNamed(pf.name, vf.peerName, vf.name);
      const bridge = await this.#ensureBridge(pf, links);
      if ((await this.#ensurePair(vf, bridge, links)) === 'here') return 'here';
      if (this.#clock.nowMs() >= endsAt) return 'elsewhere';
      await this.#clock.sleep(pollMs);
    }
  }

  /**
   * Works like {@link ensureVf}, but recreates a VF that stays elsewhere. Deleting the host's end of a pair also deletes the
   * other end, in any namespace.
   * @returns whether the VF was recreated
   * @throws as {@link ensureVf}
   */
  async recreateVf(pciAddress: string): Promise<boolean> {
    if ((await this.ensureVf(pciAddress)) === 'here') return false;
    const { connection } = this.#options;
    const { pf, vf } = this.#find(pciAddress);
    const peer = await connection.link({ name: vf.peerName });
    if (peer !== undefined) await unlessErrno('ENODEV', connection.deleteLink(peer.index));
    const links = await this.#linksNamed(pf.name, vf.peerName, vf.name);
    await this.#ensurePair(vf, await this.#ensureBridge(pf, links), links);
    return true;
  }

  /** Returns the existing links with these names. They are looked up one by one, since a node has hundreds of links. */
  async #linksNamed(...names: string[]): Promise<Link[]> {
    const found = await Promise.all(names.map((name) => this.#options.connection.link({ name })));
    // The lookup also finds links by alternative names, which are not simulated ones.
    return found.filter((link) => link !== undefined).filter(({ name }) => names.includes(name));
  }

  #find(pciAddress: string): { pf: SimulatedPf; vf: SimulatedVf } {
    for (const pf of this.#pfs) {
      const vf = pf.vfs.find((each) => each.pciAddress === pciAddress);
      if (vf !== undefined) return { pf, vf };
    }
    throw new SriovError('vf-missing', `${pciAddress} is not a simulated VF`, { device: pciAddress });
  }

  async #ensureBridge({ name, alias, hardwareAddress }: SimulatedPf, links: Link[]): Promise<Link> {
    const { connection } = this.#options;
    let bridge = links.find((link) => link.name === name);
    if (bridge === undefined) {
      await unlessErrno('EEXIST', connection.createBridge({ name, hardwareAddress, mtuBytes: switchMtuBytes }));
      bridge = await this.#read(name);
    }
    if (!isSimulatedPf(bridge, this.#options.namePrefix)) throw nameTaken(bridge);
    // The bridge is set up only once: if it is down later, someone has set it down to take the carrier from a simulated PF.
    if (bridge.alias !== alias) await connection.setLink(bridge.index, { alias, up: true });
    return bridge;
  }

  /** Makes sure that a VF's pair exists. @returns place of the VF afterwards: this namespace, or the namespace of a pod */
  async #ensurePair(vf: SimulatedVf, bridge: Link, links: Link[]): Promise<VfPlace> {
    const { connection } = this.#options;
    const { name, hardwareAddress, peerName, peerAddress } = vf;
    let peer = links.find((link) => link.name === peerName);
    if (peer === undefined) {
      const taken = links.find((link) => link.name === name && link.alias !== vf.alias);
      if (taken !== undefined) throw nameTaken(taken);
      const peerEnd = { name: peerName, hardwareAddress: peerAddress, mtuBytes: switchMtuBytes };
      await unlessErrno('EEXIST', connection.createVeth({ name, hardwareAddress, peer: peerEnd }));
      peer = await this.#read(peerName);
    }
    if (!isSimulatedPeer(peer, this.#options.namePrefix)) throw nameTaken(peer);
    if (peer.master !== bridge.index || !peer.up) {
      await connection.setLink(peer.index, { master: bridge.index, alias: `${vf.alias}/peer`, up: true });
    }
    if (peer.lowerNetnsId !== undefined || peer.lower === undefined) return 'elsewhere';
    const end = links.find(({ index }) => index === peer.lower) ?? (await connection.link({ index: peer.lower }));
    if (end === undefined) return 'elsewhere';
    if (end.alias !== vf.alias) await connection.setLink(end.index, { alias: vf.alias });
    // The VF has returned with its name in the pod. Older kernels rename only links that are down.
    if (end.name !== name) {
      await connection.setLink(end.index, { up: false });
      await connection.setLink(end.index, { name });
    }
    return 'here';
  }

  async #removeSurplus(links: Link[]): Promise<void> {
    const { connection, namePrefix } = this.#options;
    const names = new Set(this.#pfs.flatMap((pf) => [pf.name, ...pf.vfs.map(({ peerName }) => peerName)]));
    const surplus = links.filter(({ name }) => !names.has(name));
    const pairs = surplus.filter((link) => isSimulatedPeer(link, namePrefix));
    const inPods = pairs.filter(({ lowerNetnsId }) => lowerNetnsId !== undefined);
    const bridges = surplus.filter(
      (link) => isSimulatedPf(link, namePrefix) && !inPods.some(({ master }) => master === link.index),
    );
    const unused = [...pairs.filter((pair) => !inPods.includes(pair)), ...bridges];
    for (const { index } of unused) await unlessErrno('ENODEV', connection.deleteLink(index));
  }

  async #read(name: string): Promise<Link> {
    const link = await this.#options.connection.link({ name });
    if (link !== undefined) return link;
    throw new SriovError('vf-missing', `the link ${name} of a simulated card vanished while it was set up`, {
      retriable: true,
      hint: 'is another driver with the same --simulate-prefix running?',
    });
  }
}

function nameTaken({ name }: Link): SriovError {
  const message = `interface ${name} exists and was not created by netdra`;
  const hint = 'remove it, or choose another --simulate-prefix';
  return new SriovError('simulation-name-taken', message, { device: name, hint });
}

/** Ignores an error of a change that was already made: another instance may start at the same time, or a pod may have ended. */
async function unlessErrno(errno: 'EEXIST' | 'ENODEV', change: Promise<void>): Promise<void> {
  await change.catch((error: unknown) => {
    if (!(error instanceof NetlinkError && error.errno === errno)) throw error;
  });
}
