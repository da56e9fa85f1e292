import { NetlinkError } from './errors.ts';
import type { EthtoolValues } from './ethtool.ts';

/** Coalescing of one link. */
export interface CoalescingAccess {
  read(): Promise<EthtoolValues>;
  set(values: EthtoolValues): Promise<void>;
}

const adaptiveSwitches = ['useAdaptiveRx', 'useAdaptiveTx'];
/** Numbers that an adaptive mode replaces. The others, such as `rxUsecsHigh`, limit that mode, too. */
const replacedNumber = /^([rt]x)(Usecs|MaxFrames)(Irq)?$/;

/**
 * Returns whether a value is a number that the driver chooses itself, by the traffic, in the mode that `values` have. Such a
 * number has no effect, and drivers differ in what they report.
 */
export function isAdapted(name: string, values: EthtoolValues): boolean {
  const [, direction] = replacedNumber.exec(name) ?? [];
  return direction !== undefined && values[direction === 'rx' ? 'useAdaptiveRx' : 'useAdaptiveTx'] === true;
}

/**
 * Sets the values that differ, in an order that all drivers accept: ice, i40e and iavf refuse numbers with an adaptive mode
 * that is on or requested, and others change numbers with the mode. Numbers are set between the modes that end and those
 * that begin. A refused number of an adaptive mode is no failure: some drivers keep it for the time after that mode.
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
  // Also for a moment if the mode stays on.
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
