import type { Clock } from '../../lib/clock.ts';
import { SandboxError, type SandboxPlace, type StoredDevice } from '../model/index.ts';
import { leftError, type VfState } from '../vf/index.ts';
import type { DeviceReading } from './metadata-writer.ts';

/** Interval between two readings, ms. */
const everyMs = 250;

interface RouterWait {
  clock: Clock;
  place: SandboxPlace;
  signal: AbortSignal;
  /** Called before each pause. */
  waits: () => void;
  /** Called before the VFs are read again. */
  readsBegin: () => void;
  /** Reads a VF. Returns `undefined` if it has left the pod. */
  read: (device: StoredDevice) => Promise<VfState | undefined>;
}

/**
 * Waits until routers have given all VFs addresses, and updates the states of the VFs. A VF that has its address is read
 * again, too, since it may lose it while others wait.
 * @param readings readings of all VFs of a claim whose containers wait
 * @throws SandboxError `no-router-address`, `vf-left`, `vf-unknown`; NetlinkError; the signal's reason
 */
export async function awaitRouters(readings: readonly DeviceReading[], wait: RouterWait): Promise<void> {
  const { clock, place, signal, waits, readsBegin, read } = wait;
  const startedAtMs = clock.nowMs();
  const hasTime = ({ device }: DeviceReading) => clock.nowMs() < startedAtMs + waitSecondsOf(device) * 1_000;
  const waiting = readings.filter(({ device }) => waitSecondsOf(device) > 0);
  while (waiting.filter(isLacking).some(hasTime)) {
    waits();
    await clock.sleep(everyMs, signal);
    readsBegin();
    for (const reading of waiting) {
      reading.state = undefined;
      reading.state = await read(reading.device);
      if (reading.state === undefined) throw leftError([reading.device], place);
    }
  }
  const lacking = waiting.filter(isLacking);
  if (lacking.length > 0) throw lackingError(lacking);
}

/** Returns whether a VF lacks the router-assigned address that its containers wait for. */
export function isLacking({ device, state }: DeviceReading): boolean {
  return state !== undefined && waitSecondsOf(device) > 0 && state.isAutoconfigured !== true;
}

function waitSecondsOf({ config }: StoredDevice): number {
  return config.slaac?.waitSeconds ?? 0;
}

function lackingError(readings: readonly DeviceReading[]): SandboxError {
  const lacking = readings.map(({ device, state }) => {
    const { duplicates = [] } = state ?? {};
    const others = duplicates.length === 0 ? '' : `; other hosts have ${duplicates.join(', ')}`;
    return `${device.name} (${waitSecondsOf(device)} s${others})`;
  });
  const message = `no router gave a usable IPv6 address within slaac.waitSeconds to ${lacking.join(', ')}`;
  return new SandboxError('no-router-address', message, {
    device: readings.map(({ device }) => device.name).join(', '),
    retriable: true,
    hint: 'check that a router of the VLAN advertises a prefix for autoconfiguration, and that no other host has the address; the driver retries',
  });
}
