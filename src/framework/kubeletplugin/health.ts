import { KubeletPluginError } from './errors.ts';

/** The kubelet's limit for a message, in bytes. */
const maxMessageBytes = 1024;
/** The kubelet's default timeout, in seconds, if the driver sets none. */
const defaultTimeoutSeconds = 30;

export const healthStates = ['unknown', 'healthy', 'unhealthy'] as const;
export type HealthState = (typeof healthStates)[number];

export interface DeviceHealth {
  poolName: string;
  deviceName: string;
  health: HealthState;
  /** Reason of the health, shown in the status of pods. Cut to 1024 bytes. */
  message?: string;
  /** Time of the driver's last check; default: now. The health becomes unknown `timeoutSeconds` (default 30) later. */
  checkedAt?: Date;
  timeoutSeconds?: number;
}

/** A device in the stream to the kubelet; names as on the wire. */
export interface WireDeviceHealth {
  device: { poolName: string; deviceName: string };
  health: string;
  /** Time of the driver's last check, in seconds since 1970. */
  lastUpdatedTime: number;
  healthCheckTimeoutSeconds: number;
  message: string;
}

/** The driver's last health report. All streams to the kubelet read it. */
export class HealthBoard {
  readonly #now: () => Date;
  #devices: readonly (DeviceHealth & { checkedAt: Date })[] | undefined;
  readonly #listeners = new Set<() => void>();

  constructor(now: () => Date = () => new Date()) {
    this.#now = now;
  }

  /** Replaces the previous report; pass all devices. @throws KubeletPluginError `health-invalid` */
  set(devices: readonly DeviceHealth[]): void {
    const seen = new Set<string>();
    for (const device of devices) {
      check(device);
      const key = `${device.poolName}/${device.deviceName}`;
      if (seen.has(key)) throw new KubeletPluginError('health-invalid', `device ${key} is listed twice`);
      seen.add(key);
    }
    const now = this.#now();
    this.#devices = devices.map((device) => ({ ...device, checkedAt: new Date(device.checkedAt ?? now) }));
    for (const listener of this.#listeners) listener();
  }

  /** Calls `listener` at each new report, until the result is disposed of. */
  onChange(listener: () => void): Disposable {
    this.#listeners.add(listener);
    return { [Symbol.dispose]: () => void this.#listeners.delete(listener) };
  }

  /** Returns the time until the next device's health becomes unknown, ms; `undefined` if all are unknown. */
  expiresInMs(): number | undefined {
    const lefts = (this.#devices ?? []).map((device) => this.#leftMs(device)).filter((leftMs) => leftMs > 0);
    return lefts.length === 0 ? undefined : Math.min(...lefts);
  }

  /** Returns the health of all devices; `undefined` until the driver's first report. */
  snapshot(): WireDeviceHealth[] | undefined {
    return this.#devices?.map((device) => {
      const { poolName, deviceName, health, checkedAt, message = '' } = device;
      const isKnown = this.#leftMs(device) > 0;
      const text = isKnown ? message : `not checked since ${checkedAt.toISOString()}: the driver may hang`;
      return {
        device: { poolName, deviceName },
        health: isKnown ? health.toUpperCase() : 'UNKNOWN',
        lastUpdatedTime: Math.floor(checkedAt.getTime() / 1000),
        healthCheckTimeoutSeconds: timeoutSecondsOf(device),
        message: cutToBytes(text, maxMessageBytes),
      };
    });
  }

  #leftMs(device: DeviceHealth & { checkedAt: Date }): number {
    return device.checkedAt.getTime() + timeoutSecondsOf(device) * 1000 - this.#now().getTime();
  }
}

function check(device: DeviceHealth): void {
  const refuse = (reason: string) => new KubeletPluginError('health-invalid', `health of a device: ${reason}`);
  // Drivers in JavaScript are unchecked, and the encoder would fail only later, when the report is sent to the kubelet.
  if (typeof device !== 'object' || device === null) throw refuse('it is not an object');
  const texts: unknown[] = [device.poolName, device.deviceName, device.message ?? ''];
  if (!texts.every((text) => typeof text === 'string')) throw refuse('poolName, deviceName or message is not a string');
  if (device.poolName === '' || device.deviceName === '') throw refuse('it has no pool or no name');
  const name = `${device.poolName}/${device.deviceName}`;
  if (!healthStates.includes(device.health)) throw refuse(`${name} is ${JSON.stringify(device.health)}`);
  if (device.checkedAt !== undefined && Number.isNaN(new Date(device.checkedAt).getTime()))
    throw refuse(`checkedAt of ${name} is not a valid time`);
  const seconds = timeoutSecondsOf(device);
  if (!Number.isInteger(seconds) || seconds <= 0) {
    throw refuse(`timeoutSeconds of ${name} is ${seconds}, not a positive whole number`);
  }
}

function timeoutSecondsOf({ timeoutSeconds }: DeviceHealth): number {
  return timeoutSeconds ?? defaultTimeoutSeconds;
}

/** Cuts a text between characters. */
function cutToBytes(text: string, maxBytes: number): string {
  const bytes = Buffer.from(text);
  if (bytes.length <= maxBytes) return text;
  let end = maxBytes - 3;
  // A byte 10xxxxxx continues a character.
  while (((bytes[end] ?? 0) & 0xc0) === 0x80) end--;
  return `${bytes.toString('utf8', 0, end)}...`;
}
