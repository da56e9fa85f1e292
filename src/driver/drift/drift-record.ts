import type { StatusCondition } from '../../framework/kube/index.ts';
import type { ClaimDevices, StoredDevice } from '../model/index.ts';
import { type Drift, describeDrift } from './drift.ts';

/**
 * Kind of a drift. `lost`: the PF lacks settings that netdra restores; `others`: the PF has settings that another component,
 * or a trusted pod, may have chosen; `pod`: the interface in the pod differs; `network`: another host has addresses of the
 * VF.
 */
export type DriftSide = 'lost' | 'others' | 'pod' | 'network';

/** Settings that differ from class and claim, and the reason why they still differ. */
export interface DriftState {
  drifts: readonly Drift[];
  /** Reason why netdra does not restore the settings, or why a restore does not last. */
  reason: string;
}

/** Returns one state for all drifts of several states; `undefined` if there is none. */
export function combined(...states: readonly (DriftState | undefined)[]): DriftState | undefined {
  const known = states.filter((state) => state !== undefined);
  if (known.length === 0) return undefined;
  return { drifts: known.flatMap(({ drifts }) => drifts), reason: known.map(({ reason }) => reason).join('; ') };
}

interface DriftEntry {
  pciAddress: string;
  states: Partial<Record<DriftSide, DriftState>>;
}

/** Known drifts by device. They are kept in memory only: after a restart, the first round finds them again. */
export class DriftRecord {
  readonly #entries = new Map<string, DriftEntry>();
  /** Devices with a drift since the start. When the drift is over, their status needs the condition with `True`. */
  readonly #seen = new Set<string>();

  /**
   * Records a drift of a device, or the end of a drift.
   * @param state absent: the device has no drift of this kind
   * @returns whether the record has changed
   */
  set(claimUid: string, device: StoredDevice, side: DriftSide, state: DriftState | undefined): boolean {
    const { pciAddress, name } = device;
    const key = keyOf(claimUid, name);
    const entry = this.#entries.get(key) ?? { pciAddress, states: {} };
    const before = entry.states[side];
    if (JSON.stringify(before) === JSON.stringify(state)) return false;
    if (state === undefined) delete entry.states[side];
    else entry.states[side] = state;
    if (Object.keys(entry.states).length === 0) this.#entries.delete(key);
    else this.#entries.set(key, entry);
    this.#seen.add(key);
    return true;
  }

  /** Drops devices that are no longer in a pod. */
  retain(claims: readonly ClaimDevices[]): void {
    const attached = new Set(
      claims.flatMap(({ identity, devices }) =>
        devices.flatMap(({ attachment, name }) => (attachment ? [keyOf(identity.uid, name)] : [])),
      ),
    );
    for (const key of [...this.#seen]) {
      if (attached.has(key)) continue;
      this.#seen.delete(key);
      this.#entries.delete(key);
    }
  }

  /** Lists VFs whose PF has lost settings that netdra could not restore. */
  lost(): { pciAddress: string; message: string }[] {
    return [...this.#entries.values()].flatMap(({ pciAddress, states: { lost } }) =>
      lost === undefined ? [] : [{ pciAddress, message: `the device lacks settings of its claim: ${messageOf(lost)}` }],
    );
  }

  /** Returns the condition `Configured` of a device; `undefined` if the device had no drift since the start. */
  conditionOf(claimUid: string, device: string): StatusCondition | undefined {
    const key = keyOf(claimUid, device);
    const { lost, others, pod, network } = this.#entries.get(key)?.states ?? {};
    const type = 'Configured';
    const message = [lost, others, pod, network]
      .flatMap((state) => (state === undefined ? [] : messageOf(state)))
      .join('; ');
    const changed = others ?? pod;
    const reason = lost ? 'SettingsLost' : changed ? 'SettingsChanged' : 'DuplicateAddress';
    if (message !== '') return { type, status: 'False', reason, message };
    return this.#seen.has(key) ? { type, status: 'True', reason: 'AsRequested', message: '' } : undefined;
  }
}

function messageOf({ drifts, reason }: DriftState): string {
  return `${describeDrift(drifts)}: ${reason}`;
}

function keyOf(claimUid: string, device: string): string {
  return `${claimUid}/${device}`;
}
