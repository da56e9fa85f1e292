import type { AllocatedClaim } from '../../framework/kubeletplugin/index.ts';
import { type ClaimIdentity, claimName } from '../../framework/metadata/index.ts';
import { explain, NetdraError } from '../../lib/errors.ts';
import { type HungWrite, hungWriteHint } from '../../node/sriov/index.ts';
import type { SandboxIdentity, StoredClaim, StoredDevice, UnrestoredVf } from '../model/index.ts';
import type { EventReport, EventReporter, EventText, ObjectReference } from './event.ts';

/** Identifies a pod. */
export interface PodName {
  namespace: string;
  name: string;
  uid: string;
}

/** A pod sandbox, and the pod that it belongs to. */
export interface SandboxName extends PodName {
  id: string;
}

/** A fault of a card. */
export interface CardFault {
  /** Name of the fault, such as `no-carrier`. */
  name: string;
  /** Name of the card, such as `PF ens1f0 (0000:3b:00.0)`. */
  subject: string;
  /** Description of the fault, its consequence for new claims, and its remedy. */
  message: string;
}

/** Reports failures of claims as events on the claim and on its pods. */
export class FailureEvents {
  readonly #writer: EventReporter;
  /** Pods that have a sandbox on this node, by UID, with their latest sandbox. */
  readonly #pods = new Map<string, { name: PodName; sandboxId: string }>();
  /** Devices whose loss was reported: UID of the claim or pod, and device name. */
  #lost = new Set<string>();
  /** Faults of cards that were reported. */
  #cards: readonly CardFault[] = [];
  /** Keys of problems that were reported on the node and still exist, by reason of the event. */
  readonly #ofNode = new Map<string, ReadonlySet<string>>();

  constructor(writer: EventReporter) {
    this.#writer = writer;
  }

  /** Replaces the known pods with those of the listed sandboxes. Pods without a sandbox get no more events. */
  sandboxesPresent(sandboxes: readonly SandboxName[]): void {
    this.#pods.clear();
    for (const sandbox of sandboxes) this.sandboxSeen(sandbox);
  }

  sandboxSeen({ id: sandboxId, namespace, name, uid }: SandboxName): void {
    this.#pods.set(uid, { name: { namespace, name, uid }, sandboxId });
  }

  /** Drops a pod, unless it already has a newer sandbox. */
  sandboxGone({ id, uid }: SandboxName): void {
    if (this.#pods.get(uid)?.sandboxId === id) this.#pods.delete(uid);
  }

  notPrepared(claim: AllocatedClaim, error: unknown): void {
    const { identity } = claim;
    const note = `Devices of claim ${claimName(identity)} cannot be prepared: ${explain(error)}`;
    this.#report(identity, consumersOf(claim), { reason: 'DeviceNotPrepared', action: 'Preparing', note });
  }

  /**
   * Reports a conflict between two claims; the pod starts nevertheless. @param what description of the conflict, with the
   * other claim
   */
  portShared(claim: AllocatedClaim, what: string): void {
    const note = `Claim ${claimName(claim.identity)} conflicts with another claim of this node: ${what}`;
    this.#report(claim.identity, consumersOf(claim), { reason: 'PortShared', action: 'Preparing', note });
  }

  notUnprepared(claim: ClaimIdentity, error: unknown): void {
    const note = `Devices of claim ${claimName(claim)} cannot be released yet: ${explain(error)}`;
    this.#report(claim, [], { reason: 'DeviceNotReturned', action: 'Unpreparing', note });
  }

  /** Reports that a claim's devices are not attached yet. @param reason text of the error, as returned by {@link explain} */
  notAttached(claim: ClaimIdentity, podUids: string[], reason: string): void {
    const pods = this.#podsOf(podUids);
    const note = `Devices of claim ${claimName(claim)} are not attached yet, retrying: ${reason}`;
    this.#report(claim, pods, { reason: 'DeviceNotAttached', action: 'Attaching', note });
  }

  /**
   * Reports a pod that waits until its devices are attached, although nothing has failed. @param progress progress of the
   * work, with the current device
   */
  slowToAttach(pod: SandboxIdentity, claim: ClaimIdentity, progress: string): void {
    const note = `The containers wait until the devices of the pod are attached, one after the other: ${progress}`;
    const what: EventText = { reason: 'WaitingForDevices', action: 'Attaching', note };
    this.#reportSlow(claim, [nameOf(pod)], what);
  }

  /** Reports a pod that waits until its devices are prepared, before it has a sandbox. */
  slowToPrepare(claim: AllocatedClaim, progress: string): void {
    const note = `The pod waits until its devices are prepared, one after the other: ${progress}`;
    const what: EventText = { reason: 'WaitingForDevices', action: 'Preparing', note };
    this.#reportSlow(claim.identity, consumersOf(claim), what);
  }

  /**
   * Reports a container with CPUs or memory on other NUMA nodes than its devices; the container starts nevertheless.
   * @param reason NUMA nodes of the CPUs, the memory and the devices
   */
  numaMisaligned(pod: PodName, claim: ClaimIdentity, reason: string): void {
    const note = `Devices of claim ${claimName(claim)} are on another NUMA node than CPUs or memory: ${reason}`;
    this.#report(claim, [pod], { reason: 'NumaMisaligned', action: 'CreatingContainer', note });
  }

  /** Reports a pod whose network keeps changing, so that metadata and status may be out of date. */
  flapping(claim: ClaimIdentity, podUids: string[]): void {
    const note = `The pod's network is flapping. Metadata and status of claim ${claimName(claim)} are updated at most every 30 s until it settles.`;
    this.#report(claim, this.#podsOf(podUids), { reason: 'DeviceFlapping', action: 'Watching', note });
  }

  /** Reports settings that the PF had lost and netdra has restored. @param what description of the settings */
  settingsRestored(claim: ClaimIdentity, podUids: string[], device: StoredDevice, what: string): void {
    const note = `${deviceOf(device)} of claim ${claimName(claim)} had lost settings, which netdra restored: ${what}. The card was reset, or another program writes to its PF.`;
    this.#report(claim, this.#podsOf(podUids), { reason: 'SettingsRestored', action: 'Reconciling', note });
  }

  /** Reports settings that the PF has lost. @param what description of the settings, and why they are not restored */
  settingsLost(claim: ClaimIdentity, podUids: string[], device: StoredDevice, what: string): void {
    const note = `${deviceOf(device)} lacks settings of claim ${claimName(claim)} or its class at its PF: ${what}`;
    this.#report(claim, this.#podsOf(podUids), { reason: 'SettingsLost', action: 'Reconciling', note });
  }

  /**
   * Reports settings that differ and that netdra leaves alone. @param what description of the settings, and why they are left
   */
  settingsChanged(claim: ClaimIdentity, podUids: string[], device: StoredDevice, what: string): void {
    const note = `${deviceOf(device)} differs from claim ${claimName(claim)}: ${what}`;
    this.#report(claim, this.#podsOf(podUids), { reason: 'SettingsChanged', action: 'Reconciling', note });
  }

  /**
   * Reports addresses that another host has, too, so that both hosts lose traffic. @param what the addresses, and the remedy
   */
  duplicateAddresses(claim: ClaimIdentity, podUids: string[], device: StoredDevice, what: string): void {
    const note = `${deviceOf(device)} of claim ${claimName(claim)} shares an address with another host of its network: ${what}`;
    this.#report(claim, this.#podsOf(podUids), { reason: 'DuplicateAddress', action: 'Reconciling', note });
  }

  /** Reports that the status of a claim is out of date, although its pod runs. */
  statusNotWritten(claim: ClaimIdentity, podUids: string[], error: unknown): void {
    this.#report(claim, this.#podsOf(podUids), {
      reason: 'StatusNotWritten',
      action: 'WritingStatus',
      note: explain(error),
    });
  }

  containerRefused(pod: PodName, error: unknown): void {
    const refusal: EventText = { reason: 'ContainerHeldBack', action: 'CreatingContainer', note: explain(error) };
    this.#writer.report({ regarding: podReference(pod), type: 'Warning', ...refusal });
  }

  /**
   * Reports claimed devices that are no longer on the node, once for each loss. An event that the limit for events has held
   * back is reported at a later call.
   * @param present names of the devices that were found
   */
  devicesFound(pool: string, present: readonly string[], claims: readonly StoredClaim[]): void {
    const lost = new Set<string>();
    for (const { identity, devices } of claims) {
      for (const { pool: devicePool, name, pciAddress, attachment } of devices) {
        if (devicePool !== pool || present.includes(name)) continue;
        const note = `Device ${name} (${pciAddress}) of claim ${claimName(identity)} is no longer on the node: the NIC was removed or its VFs were disabled. Delete the pod to reschedule it.`;
        const pods = attachment === undefined ? [] : [nameOf(attachment)];
        for (const report of reportsOf(identity, pods, { reason: 'DeviceLost', action: 'Discovering', note })) {
          const key = `${report.regarding.uid} ${name}`;
          if (this.#lost.has(key) || this.#writer.report(report)) lost.add(key);
        }
      }
    }
    this.#lost = lost;
  }

  /** Reports each device that begins to hang, once, on the node. Claims that cannot be prepared get events of their own. */
  devicesHung(node: string, hung: readonly HungWrite[]): void {
    const notes = hung.map(({ device, path, text }): [string, string] => [
      device,
      `Device ${device} hangs: the kernel does not return from writing ${JSON.stringify(text)} to ${path}. It is tainted until the kernel returns; to resolve it, ${hungWriteHint}.`,
    ]);
    this.#reportOnNode(node, { reason: 'DeviceHung', action: 'Writing' }, notes);
  }

  devicesUnrestored(node: string, unrestored: readonly UnrestoredVf[]): void {
    const notes = unrestored.map(({ device: { name, pciAddress }, reason }): [string, string] => [
      pciAddress,
      `Device ${name} (${pciAddress}) is unavailable: restoring it after its last claim failed: ${reason}`,
    ]);
    this.#reportOnNode(node, { reason: 'DeviceNotRestored', action: 'Restoring' }, notes);
  }

  /** Reports the beginning and the end of each condition of a card, once, on the node. */
  cardsUnhealthy(node: string, conditions: readonly CardFault[]): void {
    const keyOf = ({ name, subject }: CardFault) => `${subject} ${name}`;
    const notes = conditions.map((each): [string, string] => [keyOf(each), each.message]);
    const isOver = (known: CardFault) => !conditions.some((each) => keyOf(each) === keyOf(known));
    const unreported = this.#cards.filter(isOver).filter(({ name, subject }) => {
      const note = `${subject} has recovered from ${name}`;
      const regarding = nodeReference(node);
      return !this.#writer.report({ regarding, type: 'Normal', reason: 'DeviceHealthy', action: 'Watching', note });
    });
    this.#cards = [...conditions, ...unreported];
    this.#reportOnNode(node, { reason: 'DeviceUnhealthy', action: 'Watching' }, notes);
  }

  /**
   * Reports a rejected inventory policy on the node. @param fault why the newest policy is not in force; absent: it is in
   * force
   */
  policyRejected(node: string, fault: Error | undefined): void {
    const note = `The newest inventory policy is rejected; the previous one stays in force: ${explain(fault)}`;
    const notes: [string, string][] = fault === undefined ? [] : [[note, note]];
    this.#reportOnNode(node, { reason: 'PolicyRejected', action: 'ReadingPolicy' }, notes);
  }

  /**
   * Reports slices that are out of date on the node. Temporary failures, such as a lost connection, are not reported.
   * @param error absent: the slices are published
   */
  slicesNotPublished(node: string, error: Error | undefined): void {
    if (error instanceof NetdraError && error.retriable) return;
    const note = `ResourceSlices of this node are out of date: ${explain(error)}`;
    const notes: [string, string][] = error === undefined ? [] : [[note, note]];
    this.#reportOnNode(node, { reason: 'SlicesNotPublished', action: 'Publishing' }, notes);
  }

  /**
   * Reports each problem once, until it is over. A problem that the limit for events has held back is reported at a later
   * call.
   * @param notes current problems, each with a key
   */
  #reportOnNode(node: string, what: { reason: string; action: string }, notes: [key: string, note: string][]): void {
    const known = this.#ofNode.get(what.reason);
    const regarding = nodeReference(node);
    const reported = notes.filter(
      ([key, note]) => known?.has(key) === true || this.#writer.report({ regarding, type: 'Warning', ...what, note }),
    );
    this.#ofNode.set(what.reason, new Set(reported.map(([key]) => key)));
  }

  #podsOf(uids: string[]): PodName[] {
    return uids.flatMap((uid) => this.#pods.get(uid)?.name ?? []);
  }

  #reportSlow(claim: ClaimIdentity, pods: PodName[], what: EventText): void {
    const related = claimReference(claim);
    for (const pod of pods) this.#writer.report({ regarding: podReference(pod), related, type: 'Normal', ...what });
  }

  #report(claim: ClaimIdentity, pods: PodName[], failure: EventText): void {
    for (const report of reportsOf(claim, pods, failure)) this.#writer.report(report);
  }
}

/** Returns the events of a failure: one on the claim, and one on each pod. */
function reportsOf(claim: ClaimIdentity, pods: PodName[], failure: EventText): EventReport[] {
  const related = claimReference(claim);
  const onPods = pods.map((pod) => ({ regarding: podReference(pod), related, type: 'Warning' as const, ...failure }));
  return [{ regarding: related, type: 'Warning', ...failure }, ...onPods];
}

function deviceOf({ name, pciAddress }: StoredDevice): string {
  return `Device ${name} (${pciAddress})`;
}

/** Returns the pods that a claim is reserved for. */
function consumersOf({ identity: { namespace }, object }: AllocatedClaim): PodName[] {
  const consumers = object.status?.reservedFor?.filter(({ resource }) => resource === 'pods') ?? [];
  return consumers.map(({ name, uid }) => ({ namespace, name, uid }));
}

/** Returns a reference to a node with the node's name as UID, as in events of the kubelet: the real UID is not known. */
function nodeReference(name: string): ObjectReference {
  return { apiVersion: 'v1', kind: 'Node', name, uid: name };
}

function claimReference(claim: ClaimIdentity): ObjectReference {
  return { apiVersion: 'resource.k8s.io/v1', kind: 'ResourceClaim', ...claim };
}

function podReference({ namespace, name, uid }: PodName): ObjectReference {
  return { apiVersion: 'v1', kind: 'Pod', namespace, name, uid };
}

function nameOf({ podUid: uid, podNamespace: namespace, podName: name }: SandboxIdentity): PodName {
  return { uid, namespace, name };
}
