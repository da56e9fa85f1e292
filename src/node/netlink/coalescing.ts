import { NetlinkError } from './errors.ts';
import type { EthtoolValues } from './ethtool.ts';

/** Access to the coalescing settings of one link. */
export interface CoalescingAccess {
  read(): Promise<EthtoolValues>;
  set(values: EthtoolValues): Promise<void>;
}

const adaptiveSwitches = ['useAdaptiveRx', 'useAdaptiveTx'];
/** Names of numbers that an adaptive mode replaces. Other numbers, such as `rxUsecsHigh`, also limit the adaptive mode. */
const replacedNumber = /^([rt]x)(Usecs|MaxFrames)(Irq)?$/;

/**
 * Returns whether the driver itself chooses a number, by the traffic, in the mode that `values` have. Such a number has no
 * effect, and drivers differ in what they report for it.
 */
export function isAdapted(name: string, values: EthtoolValues): boolean {
  const [, direction] = replacedNumber.exec(name) ?? [];
  return direction !== undefined && values[direction === 'rx' ? 'useAdaptiveRx' : 'useAdaptiveTx'] === true;
}

/**
 * Sets the values that differ, in an order that all drivers accept. ice, i40e and iavf refuse numbers while an adaptive mode
 * is on or requested, and other drivers change numbers with the mode. So modes that end are switched off first, then numbers
 * are set, then modes that begin are switched on. A driver may refuse a number of an adaptive mode: that is no failure, since
 * some drivers keep the number for the time after that mode.
 * @throws NetlinkError
 */
export async function setCoalescing(
  { read, set }: CoalescingAccess,
  now: EthtoolValues,
  wanted: EthtoolValues,
): Promise<void> {
  const target = { ...now, ...wanted };
  const differing = (found: EthtoolValues) => Object.entries(wanted).filter(([name, value]) => found[name] !== value);
  const changed = differing(now);
  // Adaptive modes are also switched off for a moment if they stay on.
  const endsAll = changed.some(([name, value]) => typeof value === 'number' && !replacedNumber.test(name));
  const ending = adaptiveSwitches.filter((name) => now[name] === true && (endsAll || target[name] === false));
  const beginning = adaptiveSwitches.filter((name) => target[name] === true && (endsAll || now[name] === false));
  const otherSwitches = changed.filter(
    ([name, value]) => typeof value === 'boolean' && !adaptiveSwitches.includes(name),
  );
  const send = async (values: [string, number | boolean][]) => {
    if (values.length > 0) await set(Object.fromEntries(values));
  };

  const modes = [...otherSwitches, ...ending.map((name): [string, boolean] => [name, false])];
  await send(modes);
  try {
    const left = modes.length === 0 ? changed : differing(await read());
    const numbers = left.filter(([, value]) => typeof value === 'number');
    const [adapted, fixed] = [true, false].map((is) => numbers.filter(([name]) => isAdapted(name, wanted) === is));
    await send(adapted ?? []).catch(unlessRefused);
    await send(fixed ?? []);
  } finally {
    await send(beginning.map((name) => [name, true]));
  }
}

function unlessRefused(error: unknown): void {
  if (!(error instanceof NetlinkError) || error.code !== 'netlink-refused') throw error;
}
