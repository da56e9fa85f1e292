import * as z from 'zod';
import { isPciAddress } from './pci-address.ts';
import type { Pf } from './sysfs.ts';

const id = z.string().regex(/^[0-9a-f]{4}$/, 'four lower-case hexadecimal digits, such as 8086');

/** `0-3,6`: numbers and ranges of VF indices, from 0. */
const vfRange = z.string().regex(/^\d{1,3}(-\d{1,3})?(,\d{1,3}(-\d{1,3})?)*$/, 'indices and ranges, such as 0-3,6');

/** Which PF a rule is about; every field that is there must fit. */
const selector = z.strictObject({
  name: z.string().min(1).describe('Interface name of the PF.').optional(),
  pciAddress: z.string().refine(isPciAddress, 'a PCI address with domain, such as 0000:3b:00.0').optional(),
  vendor: id.optional(),
  device: id.optional(),
  driver: z.string().min(1).optional(),
});

const pfRule = z.strictObject({
  select: selector,
  vfs: vfRange.describe('Which VFs are offered. Default: all.').optional(),
  numVfs: z.int().min(0).describe('VFs to switch on if none is. Default: as found.').optional(),
  allowInUse: z
    .boolean()
    .describe("Offer VFs also if the PF carries the node's default route or is a port of a bond or bridge.")
    .optional(),
});

/**
 * Which VFs are offered. Without `pfs` all are, of every PF that the node itself does not use; with it only those of PFs
 * that a rule selects, by the first rule that does.
 */
export const inventoryPolicySchema = z.strictObject({
  apiVersion: z.literal('netdra.dev/v1alpha1'),
  kind: z.literal('InventoryPolicy'),
  pfs: z.array(pfRule).optional(),
});

export type PfRule = z.infer<typeof pfRule>;
export type InventoryPolicy = Pick<z.infer<typeof inventoryPolicySchema>, 'pfs'>;

/** The rule for a PF; `undefined` if its VFs are not to be offered. */
export function ruleFor(policy: InventoryPolicy, pf: Pf): Omit<PfRule, 'select'> | undefined {
  if (policy.pfs === undefined) return {};
  const facts: Record<keyof PfRule['select'], string | undefined> = {
    name: pf.interfaceName,
    pciAddress: pf.pciAddress,
    vendor: pf.vendor,
    device: pf.device,
    driver: pf.driver,
  };
  return policy.pfs.find(({ select }) =>
    Object.entries(select).every(([field, value]) => facts[field as keyof typeof facts] === value),
  );
}

/** Whether a range such as `0-3,6` has an index; none has them all. */
export function includesVf(range: string | undefined, vfIndex: number): boolean {
  if (range === undefined) return true;
  return range.split(',').some((part) => {
    const [first, last = first] = part.split('-').map(Number);
    return first !== undefined && last !== undefined && vfIndex >= first && vfIndex <= last;
  });
}
