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

/** Time for an interface, or an RDMA device, to appear after its driver was bound. */
export const appears = { forMs: 5_000, everyMs: 20 };
/** Longest pause between two lists of the host's links. */
const mostPauseMs = 500;
/** Time for an interface to take a new value. */
const takesEffect = { forMs: 2_000, everyMs: 20 };

interface InterfaceFinder {
  binding: DriverBinding;
  links: FunctionLinks;
  clock: Clock;
}

interface HostInterfaces extends InterfaceFinder {
  /** Connection to the host's namespace. */
  host: LinkStateConnection;
  /** Ethtool in the same namespace; absent: its settings are not restored. */
  ethtool?: LinkEthtool;
}

/**
 * Waits for the interface of a function in the host's namespace. Lists the links of the host once, then only while sysfs
 * shows an interface, and less and less often: many VFs may be waited for at a time, and their interfaces may be elsewhere.
 * @returns `undefined` if there is none in time
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
 * Restores the interface of a function once it exists. After a driver was bound, the interface has a name of the kernel's
 * choice, which other code may not know yet.
 * @returns properties that could not be restored
 * @throws SriovError `vf-missing` if there is none
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
  // Some drivers, such as older iavf, pass a change on to the PF and do not wait for its answer.
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
