import { defined } from '../../lib/defined.ts';
import { type EthtoolValues, type LinkTuning, othersIn } from '../../node/netlink/index.ts';
import type { EthtoolConfig } from '../model/index.ts';

/** Groups of settings, in the order of their possible dependencies, as when the VF is restored. */
const groups = ['privateFlags', 'channels', 'rings', 'coalescing', 'features'] as const;

/**
 * Applies the claim's settings for a VF's driver, except for those that are already in effect. The previous values are
 * restored with the VF's other settings when the VF is back on the host.
 * @throws NetlinkError `netlink-refused` with the names that the driver does not accept
 */
export async function applyEthtool(ethtool: LinkTuning, index: number, config: EthtoolConfig): Promise<void> {
  for (const [group, values] of wantedGroups(config)) await ethtool.apply(index, group, values);
}

/** Returns the settings that differ from the claim, as texts: wanted values, and values in effect. */
export async function findOtherEthtool(
  ethtool: LinkTuning,
  index: number,
  config: EthtoolConfig,
): Promise<{ wanted: string; found: string } | undefined> {
  const [wanted, found]: [string[], string[]] = [[], []];
  for (const [group, values] of wantedGroups(config)) {
    const there = await ethtool.effective(index, group);
    for (const name of othersIn(there, values)) {
      wanted.push(`${group}.${name}=${values[name]}`);
      found.push(`${group}.${name}=${there[name] ?? 'missing'}`);
    }
  }
  return wanted.length === 0 ? undefined : { wanted: wanted.join(', '), found: found.join(', ') };
}

function wantedGroups(config: EthtoolConfig): [(typeof groups)[number], EthtoolValues][] {
  return groups.flatMap((group): [typeof group, EthtoolValues][] => {
    const values = defined(config[group] ?? {}) as EthtoolValues;
    return Object.keys(values).length === 0 ? [] : [[group, values]];
  });
}
