import * as z from 'zod';
import {
  adSelects,
  type BondMode,
  bondModes,
  failOverMacs,
  lacpRates,
  primaryReselects,
  xmitHashPolicies,
} from '../../node/netlink/index.ts';
import type { BondConfig } from '../model/index.ts';
import type { FieldsOf } from './fields-of.ts';
import { isArpTarget, linkName } from './text-checks.ts';

/** Bond modes that can have a primary member. */
const primaryModes = ['active-backup', 'balance-tlb', 'balance-alb'] as const;

/** Modes in which the kernel's bonds have an option. Options that are not listed are valid in all modes. */
export const bondOptionModes = {
  failOverMac: ['active-backup'],
  primary: primaryModes,
  primaryReselect: primaryModes,
  arpInterval: ['balance-rr', 'active-backup', 'balance-xor', 'broadcast'],
  xmitHashPolicy: ['balance-xor', '802.3ad', 'balance-tlb'],
  lacpRate: ['802.3ad'],
  adSelect: ['802.3ad'],
} as const satisfies Partial<Record<keyof BondConfig, readonly BondMode[]>>;

function bondFaults(config: BondConfig): [field: string, message: string][] {
  const { mode = 'active-backup', miimon, arpInterval, arpTargets, primary, primaryReselect } = config;
  const faults = Object.entries(bondOptionModes).flatMap(([option, modes]): [string, string][] => {
    const isFine = config[option as keyof BondConfig] === undefined || (modes as readonly BondMode[]).includes(mode);
    return isFine ? [] : [[option, `is for mode ${modes.join(', ')} only`]];
  });
  if ((arpInterval === undefined) !== (arpTargets === undefined))
    faults.push(['arpInterval', 'must be set together with arpTargets']);
  if (arpInterval !== undefined && miimon !== undefined) faults.push(['arpInterval', 'cannot be combined with miimon']);
  if (primaryReselect !== undefined && primary === undefined) faults.push(['primaryReselect', 'needs primary']);
  return faults;
}

export const bond = z
  .strictObject({
    name: linkName.describe('Name of the bond in the pod. Requests of one claim with the same bond are its members.'),
    mode: z.enum(bondModes).describe('Bonding mode. Default: active-backup.').optional(),
    miimon: z
      .int()
      .min(10)
      .max(10_000)
      .describe('Interval between link checks of the members, ms. Default: 100.')
      .optional(),
    arpInterval: z
      .int()
      .min(100)
      .max(60_000)
      .describe('How often arpTargets are probed, ms, in place of miimon.')
      .optional(),
    arpTargets: z
      .array(z.string().refine(isArpTarget, 'an IPv4 address of a host').meta({ format: 'arp-target' }))
      .min(1)
      .max(16)
      .describe('Hosts whose answers show that a member works.')
      .optional(),
    failOverMac: z
      .enum(failOverMacs)
      .describe('Whose MAC address the bond has after a failover, with active-backup only. Default: active.')
      .optional(),
    primary: z
      .string()
      .regex(/^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/, 'must be the name of a request')
      .describe(
        'Request whose VF the bond uses while that VF works. Default: none: the bond stays with its current member.',
      )
      .optional(),
    primaryReselect: z
      .enum(primaryReselects)
      .describe(
        'When the bond returns to the primary VF: once that works again, only if it is faster, or only if the other fails. Default: always.',
      )
      .optional(),
    xmitHashPolicy: z
      .enum(xmitHashPolicies)
      .describe('Headers that decide which member sends a packet. Default: layer2.')
      .optional(),
    lacpRate: z.enum(lacpRates).describe('How often the switch sends LACP frames. Default: slow.').optional(),
    adSelect: z.enum(adSelects).describe('Which of several LACP partners the bond uses. Default: stable.').optional(),
  } satisfies FieldsOf<BondConfig>)
  .superRefine((config, context) => {
    for (const [path, message] of bondFaults(config)) context.addIssue({ code: 'custom', path: [path], message });
  })
  .meta({ format: 'bond' })
  .describe('Joins VFs of one claim into one interface, which gets addresses, routes, mtu and sysctls.');
