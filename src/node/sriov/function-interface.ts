import type { Clock } from '../../lib/clock.ts';
import { type PollTimes, poll } from '../../lib/poll.ts';
import {
  type FunctionLinks,
  isEthernetAddress,
  type Link,
  type LinkEthtool,
  type LinkState,
  type LinkStateConnection,
  NetlinkError,
  type RestoreFailure,
  restoreLinkState,
} from '../netlink/index.ts';
import type { DriverBinding } from './driver-binding.ts';
import { SriovError } from './errors.ts';

/** Time for an interface, or an RDMA device, to appear after its driver was bound, and interval of checks, ms. */
export const appears = { forMs: 5_000, everyMs: 20 };
/** Longest pause between two lists of the host's links, ms. */
const mostPauseMs = 500;
/** Time for an interface to take a new value, and interval of checks, ms. */
const takesEffect = { forMs: 2_000, everyMs: 20 };

interface InterfaceFinder {
  binding: DriverBinding;
  links: FunctionLinks;
  clock: Clock;
}

interface HostInterfaces extends InterfaceFinder {
  /** Netlink connection in the host's network namespace. */
  host: LinkStateConnection;
  /** Ethtool in the host's network namespace; absent: ethtool settings are not restored. */
  ethtool?: LinkEthtool;
}

/**
 * Waits for the interface of a function in the host's network namespace. Lists the host's links once, and then at growing
 * intervals, only while sysfs shows that the function has an interface: the driver may wait for many VFs at a time, whose
 * interfaces may be in other namespaces.
 * @returns `undefined` if no interface appears in time
 */
export async function awaitInterface(
  { binding, links, clock }: InterfaceFinder,
  pciAddress: string,
  times: PollTimes,
): Promise<Link | undefined> {
  const first = await links.find(pciAddress);
  if (first !== undefined || times.forMs === 0) return first;
  const find = async () => ((await binding.hasInterface(pciAddress)) ? await links.find(pciAddress) : undefined);
  return await poll(clock, { mostMs: mostPauseMs, ...times }, find);
}

/**
 * Restores the interface of a function once it exists. After a driver was bound, the interface has a name that the kernel
 * chooses, so it is found by the PCI address.
 * @returns properties that could not be restored
 * @throws SriovError `vf-missing` if no interface appears
 */
export async function restoreInterface(
  { binding, links, host, ethtool, clock }: HostInterfaces,
  pciAddress: string,
  wanted: LinkState,
): Promise<RestoreFailure[]> {
  const link = await awaitInterface({ binding, links, clock }, pciAddress, appears);
  if (link === undefined) {
    const message = `${pciAddress} has no interface ${appears.forMs} ms after its driver was bound`;
    const hint = 'the kernel log says why';
    throw new SriovError('vf-missing', message, { device: pciAddress, retriable: true, hint });
  }
  const { index } = link;
  const failures = await restoreLinkState(host, index, wanted, ethtool);
  const known = new Set(failures.map(({ property }) => property));
  if (known.has('link')) return failures;
  // Some drivers, such as older iavf, pass a change on to the PF without waiting for its answer, so the values are read back.
  const withoutEffect = async () => {
    const now = await host.link({ index });
    return (['hardwareAddress', 'mtuBytes'] as const).filter((property) => {
      const value = wanted[property];
      const isSettable = typeof value !== 'string' || isEthernetAddress(value);
      return value !== undefined && isSettable && now?.[property] !== value && !known.has(property);
    });
  };
  const properties = await poll(clock, takesEffect, withoutEffect, ({ length }) => length === 0);
  const message = `link #${index} has not changed after it was set`;
  const error = new NetlinkError('netlink-refused', message, { retriable: true });
  return [...failures, ...properties.map((property) => ({ property, error }))];
}
