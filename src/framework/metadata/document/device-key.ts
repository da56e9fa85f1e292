import { defined } from '../../../lib/defined.ts';

/** A device as its driver names it. */
export interface DeviceName {
  pool: string;
  name: string;
  /** Of a device that is allocated several times: which share of it this is. Source: KEP-5075, `shareID` of an allocation result. */
  shareId?: string;
}

/** Identifies a device, or a share of one, in a cluster. */
export interface DeviceKey extends DeviceName {
  driver: string;
}

/** `driver/pool/name`, with `@` and its share behind it if it has one. A pool may contain slashes; the other parts may not. */
export function formatDeviceKey({ driver, pool, name, shareId = '' }: DeviceKey): string {
  return `${driver}/${pool}/${name}${shareId === '' ? '' : `@${shareId}`}`;
}

/** @throws SyntaxError for a text that is none of `formatDeviceKey` */
export function parseDeviceKey(text: string): DeviceKey {
  const [, driver, pool, name, shareId] = /^([^/]+)\/(.+)\/([^/@]+)(?:@(.+))?$/.exec(text) ?? [];
  if (driver === undefined || pool === undefined || name === undefined) {
    throw new SyntaxError(`${JSON.stringify(text)} is not the key of a device`);
  }
  return { driver, pool, name, ...defined({ shareId }) };
}

/** Whether both are one device of a driver, and the same share of it. */
export function isSameDevice(one: DeviceName, other: DeviceName): boolean {
  const isNamed = one.pool === other.pool && one.name === other.name;
  return isNamed && (one.shareId ?? '') === (other.shareId ?? '');
}

/** @returns the one of these devices of a driver that has the name */
export function findDevice<T extends DeviceName>(devices: readonly T[] | undefined, named: DeviceName): T | undefined {
  return devices?.find((each) => isSameDevice(each, named));
}
