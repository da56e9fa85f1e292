import * as z from 'zod';
import { pciAddressPattern } from '../sriov/pci-address.ts';

const inQuotes = (what: string) => z.string({ error: `${what}, as text: put it in quotes` });

/** Maker of a schema from the schema of one value. In a list of values, any of them may match. */
type Values = <T extends z.ZodType>(value: T) => z.ZodType<z.output<T> | z.output<T>[]>;
const oneOrMore: Values = (value) => z.union([value, z.array(value).min(1)]);
/** Makes a schema that accepts only lists: a field of the API can have only one type. */
const list: Values = (value) => z.array(value).min(1).max(64);

const id = inQuotes('four hexadecimal digits').regex(
  /^[0-9a-f]{4}$/,
  'four lower-case hexadecimal digits, such as 8086',
);
const name = inQuotes('a name').min(1);

const backwards = 'a range ends before it begins';
const isForwards =
  "self.split(',').all(part, [part.split('-')].all(ends, ends.size() < 2 || int(ends[0]) <= int(ends[1])))";
/** Indices and ranges of VFs, from 0: `0-3,6`. */
const vfRange = inQuotes('indices and ranges')
  .regex(/^\d{1,3}(-\d{1,3})?(,\d{1,3}(-\d{1,3})?)*$/, 'indices and ranges, such as 0-3,6')
  .max(128)
  .refine((text) => parseRange(text).every(({ first, last }) => first <= last), backwards)
  .meta({ 'x-kubernetes-validations': [{ rule: isForwards, message: backwards }] });

/** Name that Multus compares with the resource name in an annotation of the network. */
const resourceName = z
  .string()
  .max(64)
  .regex(/^[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?$/, 'a name such as example.com/sriov')
  .describe('Attribute k8s.cni.cncf.io/resourceName of the devices, for Multus.');

/** Maximum number of rules. It also limits the cost of the API server's validation. */
const mostRules = 64;

/** Rate in Mbit/s, the unit of netlink. */
const rate = z.int().min(1).max(0xfffffffe);

/** Makes the schema that selects physical functions. A function must match every field that is set. */
const selectorOf = (values: Values) =>
  z.strictObject({
    name: values(name).describe('Interface name or alternative name.').optional(),
    pciAddress: values(
      inQuotes('a PCI address').regex(pciAddressPattern, 'a PCI address with domain, such as 0000:3b:00.0'),
    ).optional(),
    vendor: values(id).optional(),
    device: values(id).optional(),
    driver: values(name).describe('Kernel driver.').optional(),
    linkType: z.enum(['ethernet', 'infiniband']).optional(),
  });

const pfRuleOf = (values: Values) =>
  z.strictObject({
    select: selectorOf(values).describe('PFs that the rule matches.'),
    vfs: vfRange.describe('VFs to offer. Default: all.').optional(),
    vfDriver: values(name).describe('Only VFs that have this kernel driver, such as vfio-pci.').optional(),
    numVfs: z.int().min(0).describe('Number of VFs to enable if the PF has none. Default: unchanged.').optional(),
    allowInUse: z
      .boolean()
      .describe("Offer VFs even if the PF carries the node's default route or is a port of a bond or bridge.")
      .optional(),
    bandwidth: z
      .strictObject({
        guaranteedMbps: rate.describe('Guaranteed Mbit/s of each VF; also its maximum, unless burst is set.'),
        portMbps: rate.describe('Speed of the port. Default: as the kernel reports it.').optional(),
        burst: z
          .boolean()
          .describe('Let VFs send more while the port is idle. Needs a card with minimum rates. Default: false.')
          .optional(),
      })
      .describe('Bandwidth of VFs. Claims get no more VFs of a port than its bandwidth allows.')
      .optional(),
    resourceName: resourceName.optional(),
  });

const nicRuleOf = (values: Values) =>
  z.strictObject({
    // The field is required: a rule without it would take every card that carries no default route from the node.
    select: selectorOf(values)
      .refine((fields) => Object.keys(fields).length > 0, 'at least one field')
      .meta({ description: 'NICs to offer.', minProperties: 1 }),
    allowInUse: z
      .enum(['addresses', 'default-route'])
      .describe('Offer NICs even if the node has addresses on them, or also a default route. Default: neither.')
      .optional(),
    resourceName: resourceName.optional(),
  });

/** Effect of a condition's taint on the scheduler and on running pods. */
const effect = z.enum(['None', 'NoSchedule', 'NoExecute']);

const taints = z.strictObject({
  noCarrier: effect.describe('The PF, or the representor of the VF, has no carrier.').optional(),
  pfDown: effect.describe('The PF is administratively down while its VFs are offered.').optional(),
  lacpPartnerLost: effect.describe('The PF is in a bond in mode 802.3ad, and its partner does not answer.').optional(),
  missingDriver: effect.describe('The PF has no kernel driver.').optional(),
  // This taint cannot be switched off: such a device cannot be prepared for any claim.
  hung: effect.exclude(['None']).describe('The kernel does not return from a write for the device.').optional(),
});

const health = z.strictObject({
  lacpRelay: z
    .boolean()
    .describe(
      'Set links of VFs in claims down while the LACP partner of their PF is lost, if their link state is auto. Default: false.',
    )
    .optional(),
});

const rulesOf = (values: Values) => ({
  pfs: z.array(pfRuleOf(values)).max(mostRules).optional(),
  nics: z.array(nicRuleOf(values)).max(mostRules).optional(),
  resourceName: resourceName.optional(),
  health: health.describe('Reactions to a condition of a device, besides the taint.').optional(),
  taints: taints.describe('Effect of the taint for each condition of a device. Default: NoSchedule.').optional(),
});

/**
 * Inventory policy. Without `pfs`, all VFs are offered of every PF that the node itself does not use; with `pfs`, the VFs
 * that a rule covers, by the first such rule. Whole NICs are offered only if a rule of `nics` selects them.
 */
export const inventoryPolicySchema = z.strictObject({
  apiVersion: z.literal('netdra.dev/v1alpha1'),
  kind: z.literal('InventoryPolicy'),
  ...rulesOf(oneOrMore),
});

/** Rules of a NetworkDevicePolicy, in which even a single value must be a list. */
export const policySpecSchema = z.strictObject(rulesOf(list));

type Selector = z.infer<ReturnType<typeof selectorOf>>;
export type PfRule = z.infer<ReturnType<typeof pfRuleOf>>;
export type NicRule = z.infer<ReturnType<typeof nicRuleOf>>;
export type InventoryPolicy = Omit<z.infer<typeof inventoryPolicySchema>, 'apiVersion' | 'kind'>;

/** Facts about a physical function that rules can select by. */
type SelectableFacts = Partial<Record<Exclude<keyof Selector, 'name'>, string | undefined>> & {
  /** All names of the function's ports: a renamed interface keeps the old name as an alternative name. */
  names?: readonly string[];
};

/** Rules of a policy without `pfs`: one rule that covers everything. */
const everything: PfRule[] = [{ select: {} }];

/** Returns the rules for a PF, in order. Each VF follows the first one for which {@link coversVf} returns `true`. */
export function rulesForPf({ pfs = everything }: InventoryPolicy, pf: SelectableFacts): PfRule[] {
  return pfs.filter(({ select }) => selects(select, pf));
}

/** Returns the rules for a NIC, in order. The NIC follows the first one. */
export function rulesForNic({ nics = [] }: InventoryPolicy, nic: SelectableFacts): NicRule[] {
  return nics.filter(({ select }) => selects(select, nic));
}

export function coversVf({ vfs, vfDriver }: PfRule, vf: { vfIndex: number; driver?: string | undefined }): boolean {
  if (!fits(vfDriver, vf.driver)) return false;
  if (vfs === undefined) return true;
  return parseRange(vfs).some(({ first, last }) => vf.vfIndex >= first && vf.vfIndex <= last);
}

function selects({ name, ...others }: Selector, { names = [], ...facts }: SelectableFacts): boolean {
  const fields = Object.keys(others) as (keyof typeof others)[];
  const isNamed = name === undefined || names.some((each) => fits(name, each));
  return isNamed && fields.every((field) => fits(others[field], facts[field]));
}

/** Returns whether a value is among the wanted ones. @param wanted absent: any value fits */
function fits(wanted: string | string[] | undefined, value: string | undefined): boolean {
  return wanted === undefined || (value !== undefined && [wanted].flat().includes(value));
}

/** Parses a valid text of VF indices and ranges: `0-3,6`. */
export function parseRange(text: string): { first: number; last: number }[] {
  return text.split(',').map((part) => {
    const [first = 0, last = first] = part.split('-').map(Number);
    return { first, last };
  });
}
