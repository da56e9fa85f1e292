import { join } from 'node:path';
import { defined } from '../../lib/defined.ts';
import { listOptionalDir, parseCount, readInterfaceText } from './sysfs-files.ts';

/** Facts from sysfs about a network interface of a PCI function. */
export interface NetInterface {
  name: string;
  /** MAC address, lower case with colons; 20 octets for InfiniBand. */
  hardwareAddress: string;
  mtuBytes: number;
}

export type LinkType = 'ethernet' | 'infiniband';

/** Type and speed of an interface's port. */
export interface Port {
  linkType?: LinkType;
  /** Speed in Mbit/s; absent while the link is down, or if the driver does not report it. */
  linkSpeedMbps?: number;
}

/** `ARPHRD_*` of Linux `if_arp.h`. */
const linkTypes = new Map<string, LinkType>([
  ['1', 'ethernet'],
  ['32', 'infiniband'],
]);

/**
 * Returns a function's interfaces by name, if they are in the network namespace in which sysfs was mounted. Leaves out an
 * interface that disappears between two reads.
 * @param dir directory of the function
 */
export async function readNetInterfaces(dir: string): Promise<NetInterface[]> {
  const names = (await listOptionalDir(join(dir, 'net'))) ?? [];
  const found = await Promise.all(
    names.map(async (name): Promise<NetInterface[]> => {
      const file = (attribute: string) => join(dir, 'net', name, attribute);
      const [hardwareAddress, mtu] = await Promise.all([
        readInterfaceText(file('address')),
        readInterfaceText(file('mtu')),
      ]);
      if (hardwareAddress === undefined || mtu === undefined) return [];
      return [{ name, hardwareAddress, mtuBytes: parseCount(file('mtu'), mtu) }];
    }),
  );
  return found.flat();
}

/** Reads the port of an interface. @param dir directory of the function */
export async function readPort(dir: string, interfaceName: string): Promise<Port> {
  const file = (attribute: string) => join(dir, 'net', interfaceName, attribute);
  const [type, speed] = await Promise.all([
    readInterfaceText(file('type')),
    // The kernel answers EINVAL while the interface is down, and other errors if firmware does not answer. An unknown speed
    // must not exclude the card.
    readInterfaceText(file('speed')).catch(() => undefined),
  ]);
  return defined({ linkType: linkTypes.get(type ?? ''), linkSpeedMbps: parseSpeed(speed) });
}

/** Reads `IFF_UP`. Source: kernel Documentation/ABI/testing/sysfs-class-net, `flags`. @param dir directory of the function */
export async function readIsUp(dir: string, interfaceName: string): Promise<boolean | undefined> {
  const flags = await readInterfaceText(join(dir, 'net', interfaceName, 'flags'));
  return flags === undefined ? undefined : (Number(flags) & 1) === 1;
}

/** Parses a speed; `undefined` if it is unknown: the kernel then writes -1, on some versions as an unsigned number. */
function parseSpeed(text: string | undefined): number | undefined {
  if (text === undefined || !/^\d{1,9}$/.test(text)) return undefined;
  return Number(text) || undefined;
}
