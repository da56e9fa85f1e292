import { defined } from '../../../lib/defined.ts';

/** A device as its driver names it. */
export interface DeviceName {
  pool: string;
  name: string;
  /** ID of the share, for a device that is allocated several times. Source: KEP-5075, `shareID` of an allocation result. */
  shareId?: string;
}

/** Identity of a device, or of a share of one, in a cluster. */
export interface DeviceKey extends DeviceName {
  driver: string;
}

/**
 * Formats a key as `driver/pool/name`, and `@` with the share ID if there is one. A pool may contain slashes; the other parts
 * may not.
 */
export function formatDeviceKey({ driver, pool, name, shareId = '' }: DeviceKey): string {
  return `${driver}/${pool}/${name}${shareId === '' ? '' : `@${shareId}`}`;
}

/** Parses a key. @throws SyntaxError for a text that `formatDeviceKey` does not produce */
export function parseDeviceKey(text: string): DeviceKey {
  const [, driver, pool, name, shareId] = /^([^/]+)\/(.+)\/([^/@]+)(?:@(.+))?$/.exec(text) ?? [];
  if (driver === undefined || pool === undefined || name === undefined) {
    throw new SyntaxError(`${JSON.stringify(text)} is not the key of a device`);
  }
  return { driver, pool, name, ...defined({ shareId }) };
}

/** Returns whether two names stand for the same device of a driver, and the same share of it. */
export function isSameDevice(one: DeviceName, other: DeviceName): boolean {
  const isNamed = one.pool === other.pool && one.name === other.name;
  return isNamed && (one.shareId ?? '') === (other.shareId ?? '');
}

/** Finds a device of a driver, and a share of it, by name. */
export function findDevice<T extends DeviceName>(devices: readonly T[] | undefined, named: DeviceName): T | undefined {
  return devices?.find((each) => isSameDevice(each, named));
}
