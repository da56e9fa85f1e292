import { claimKey, formatDeviceKey } from '../../src/framework/metadata/index.ts';
import type { Namespace, SimLink } from './links.ts';
import type { Process } from './simulator.ts';
import type { Node } from './world.ts';

/** An interface when it left the host for its claim. */
interface Departure {
  claimUid: string;
  link: SimLink;
  state: Record<string, string>;
}

/** Of attachments, by PCI address. */
export type AttachmentChanges = ReadonlyMap<string, object | undefined>;

/** A VF's way to a sandbox and back: who moves it has the lock of its claim, and it comes back as it left. */
export class Returns {
  readonly #node: Node;
  /** By PCI address. */
  readonly #departures = new Map<string, Departure>();
  readonly #onViolation: (rule: string, message: string) => void;

  constructor(node: Node, onViolation: (rule: string, message: string) => void) {
    this.#node = node;
    this.#onViolation = onViolation;
  }

  /** @param by a process of the driver, if the driver has moved it */
  moved(link: SimLink, from: Namespace, to: Namespace, by: string | undefined): void {
    const { parentDevice: pciAddress } = link;
    const instance = this.#node.instances.find(({ process }) => process.name === by);
    const holder = instance && pciAddress && this.#node.aside(() => instance.store.holderOf(pciAddress));
    if (!instance || !holder || pciAddress === undefined) return;
    const { identity, devices } = holder;
    this.#checkLock(instance.process, claimKey(identity), `moves ${pciAddress}`);
    const { attach = 'netlink' } = devices.find((device) => device.pciAddress === pciAddress)?.config ?? {};
    const isFirst = this.#departures.get(pciAddress)?.claimUid !== identity.uid;
    if (!isFirst || !from.isHost || to.isHost || attach !== 'netlink') return;
    this.#departures.set(pciAddress, { claimUid: identity.uid, link, state: stateOf(link) });
  }

  /** Before a process stores where VFs of a claim are. */
  attachmentsChange(claimUid: string, changes: AttachmentChanges, process: Process): void {
    const store = this.#node.instances.find((each) => each.process === process)?.store;
    const claim = store && this.#node.aside(() => store.claim(claimUid));
    if (claim === undefined) return;
    this.#checkLock(process, claimKey(claim.identity), 'stores where VFs are');
    for (const [key, attachment] of changes) {
      const device = claim.devices.find((each) => formatDeviceKey(each) === key);
      if (attachment !== undefined || device?.attachment === undefined) continue;
      const { pciAddress } = device;
      this.#checkReturn(pciAddress, claimUid, claim.state === 'unpreparing');
      this.#departures.delete(pciAddress);
    }
  }

  /** Until a VF is as it was before its claim was attached, the store says that it is not. */
  #checkReturn(pciAddress: string, claimUid: string, isOver: boolean): void {
    const before = this.#departures.get(pciAddress);
    // After a reset, or a boot, it has another interface.
    if (before?.claimUid !== claimUid || before.link.isGone || !before.link.namespace.isHost) return;
    const now = stateOf(before.link);
    // The address that a claim has asked for is set when it is prepared.
    const changes = Object.entries(before.state).flatMap(([key, value]) =>
      now[key] === value || (isOver && key === 'MAC') ? [] : `${key} ${now[key]}, not ${value}`,
    );
    if (changes.length === 0) return;
    this.#onViolation('not-returned', `${pciAddress} is stored in no sandbox, and has ${changes.join(', ')}`);
  }

  /** All work on a claim that is prepared holds its lock, which all instances know. */
  #checkLock(process: Process, key: string, what: string): void {
    const instance = this.#node.instances.find((each) => each.process === process);
    // Before it serves calls, it ends what an earlier boot has left.
    if (instance?.calls === undefined || instance.holds(key)) return;
    this.#onViolation('without-lock', `${process.name} ${what} and does not hold the lock of ${key}`);
  }
}

/** The properties that neither a move nor its driver changes. */
function stateOf({
  mtuBytes,
  hardwareAddress,
  alias,
  group,
  txQueueLength,
  flags,
  xdp,
  rings,
}: SimLink): Departure['state'] {
  return {
    MTU: `${mtuBytes}`,
    MAC: hardwareAddress,
    alias,
    group: `${group}`,
    'queue length': `${txQueueLength}`,
    flags: [...flags].sort().join(),
    XDP: [...xdp].join(),
    rings: `${rings.rx}`,
  };
}
