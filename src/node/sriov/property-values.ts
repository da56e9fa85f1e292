import { defined } from '../../lib/defined.ts';
import type { VfChange, VfInfo } from '../netlink/index.ts';
import { SriovError } from './errors.ts';

/**
 * Wanted settings of a PF for a VF. Absent settings stay unchanged. An absent half of the rate also stays, unless the wanted
 * half contradicts it.
 */
export type VfPropertiesWanted = Omit<VfChange, 'rate'> & { rate?: Partial<NonNullable<VfChange['rate']>> };

export type VfProperty = keyof VfChange;

/** Address that removes an administrative address, so that the VF may choose its own. */
export const noAddress = '00:00:00:00:00:00';

/** Returns the change that restores the settings that the PF reports. Settings that it does not report are absent. */
export function toChange(info: VfInfo): VfChange {
  const { hardwareAddress = noAddress, vlan = { id: 0, priority: 0 }, spoofCheck, trust, linkState } = info;
  const { minTxRateMbps: minMbps, maxTxRateMbps: maxMbps } = info;
  const rate = minMbps === undefined || maxMbps === undefined ? undefined : { minMbps, maxMbps };
  return { hardwareAddress, vlan, ...defined({ spoofCheck, trust, linkState, rate }) };
}

/**
 * Completes a rate: the kernel sets both halves at once, and refuses a minimum above the maximum (`rtnl_set_vf_rate`). If the
 * present half contradicts the wanted half, it becomes 0 (none): a guarantee does not hold under a lower limit, nor a limit
 * under a higher guarantee.
 */
export function complete({ rate, ...rest }: VfPropertiesWanted, now: VfChange): VfChange {
  if (rate === undefined) return rest;
  const none = { minMbps: 0, maxMbps: 0 };
  const both = { ...none, ...now.rate, ...rate };
  const isContradiction = both.maxMbps > 0 && both.maxMbps < both.minMbps;
  return { ...rest, rate: isContradiction ? { ...none, ...rate } : both };
}

export function propertiesOf(change: VfPropertiesWanted): VfProperty[] {
  return Object.keys(change) as VfProperty[];
}

export function difference(now: VfChange, wanted: VfChange): VfChange {
  const changed = Object.entries(wanted).filter(([property, value]) => {
    const current = now[property as VfProperty];
    return current === undefined || comparable(current) !== comparable(value);
  });
  return Object.fromEntries(changed);
}

/** Returns the properties that a PF has left unchanged although it accepted another value. */
export function withoutEffect(change: VfChange, before: VfChange, now: VfChange): VfProperty[] {
  return propertiesOf(difference(now, change)).filter((property) => {
    // A VF that may choose its address has one at once, and some PFs report it.
    if (change.hardwareAddress === noAddress && property === 'hardwareAddress') {
      return now.hardwareAddress === before.hardwareAddress;
    }
    if (property !== 'rate' || change.rate === undefined || now.rate === undefined) return true;
    const isOld = before.rate !== undefined && comparable(before.rate) === comparable(now.rate);
    return isOld || !isRounded(change.rate, now.rate);
  });
}

/** Rounding of cards, which set rates in steps such as 50 Mbit/s (i40e) or a hundredth of the port's speed. */
const rounding = { mbps: 50, share: 0.1 };

/**
 * Returns whether a card may have rounded the wanted rates to the found ones. A rate that becomes none, or none that becomes
 * a rate, is never rounding.
 */
export function isRounded(wanted: NonNullable<VfChange['rate']>, found: NonNullable<VfChange['rate']>): boolean {
  const isNear = (want: number, is: number) =>
    want === 0 || is === 0 ? want === is : Math.abs(want - is) <= Math.max(rounding.mbps, rounding.share * want);
  return isNear(wanted.minMbps, found.minMbps) && isNear(wanted.maxMbps, found.maxMbps);
}

/**
 * Returns the properties that a VF may still have from a claim, since their original values are unknown. Leaves out
 * properties that the PF does not report: drivers report what they can set.
 */
export function leftBehind(changed: VfPropertiesWanted, before: VfChange, now: VfChange): VfProperty[] {
  return propertiesOf(changed).filter((property) => {
    const current = now[property];
    if (property in before || current === undefined) return false;
    const set = complete(changed, now)[property];
    return set !== undefined && comparable(current) === comparable(set);
  });
}

/** Returns a text that is equal for equal values: hardware addresses in either case, VLANs with and without default values. */
function comparable(value: NonNullable<VfChange[VfProperty]>): string {
  if (typeof value === 'object' && 'id' in value) {
    const { id, priority = 0, protocol = '802.1q' } = value;
    return id === 0 ? 'untagged' : `${id} ${priority} ${protocol}`;
  }
  if (typeof value === 'object') return `${value.minMbps} ${value.maxMbps}`;
  return String(value).toLowerCase();
}

/**
 * Checks that a claim for a whole NIC requests no VF properties: there is no PF to set them. A MAC is allowed if the NIC gets
 * an interface in the pod, where the MAC is set.
 * @param asked requested properties
 * @throws SriovError `no-vf` with the properties that the NIC cannot have
 */
export function assertNoVfProperties(pciAddress: string, asked: object, toUserSpace = false): void {
  const refused = Object.keys(asked).filter((property) => toUserSpace || property !== 'hardwareAddress');
  if (refused.length === 0) return;
  const what = refused.map((property) => (property === 'hardwareAddress' ? 'another MAC in user space' : property));
  const message = `${pciAddress} is a plain NIC and cannot have ${what.join(', ')}`;
  const hint = 'only a PF can set this, for its virtual functions: leave it out, or let the claim select kind "vf"';
  throw new SriovError('no-vf', message, { device: pciAddress, hint });
}
