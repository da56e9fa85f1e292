import * as z from 'zod';
import { claimFields } from '../model/index.ts';
import { poolLabel } from './address-pool.ts';
import { checked } from './text-checks.ts';
import { kubernetesName, network, vfConfigSchema } from './vf-config.ts';

const labelText = z.string().max(317);
const labels = z.record(labelText, z.string().max(63));

/** A label selector. Source: meta/v1 `LabelSelector`. */
export const labelSelector = z.strictObject({
  matchLabels: labels.optional(),
  matchExpressions: z
    .array(
      z.strictObject({
        key: labelText,
        operator: z.enum(['In', 'NotIn', 'Exists', 'DoesNotExist']),
        values: z.array(z.string().max(63)).max(64).optional(),
      }),
    )
    .max(16)
    .optional(),
});
export type LabelSelector = z.infer<typeof labelSelector>;

function isVlanRange(text: string): boolean {
  const [from, to] = vlanBounds(text);
  return /^(0|[1-9][0-9]{0,3})(-[1-9][0-9]{0,3})?$/.test(text) && from <= to && from <= 4094;
}

/** Returns the first and the last VLAN ID of a range such as `100-199`; for a single ID, both are that ID. */
export function vlanBounds(range: string): [from: number, to: number] {
  const [from = 0, to = from] = range.split('-').map(Number);
  return [from, to];
}

const limits = z
  .strictObject({
    allowedNamespaces: z
      .strictObject({
        names: z.array(kubernetesName).max(256).optional(),
        selector: labelSelector.optional(),
      })
      .describe('Namespaces whose claims may use the class: by name, or by their labels. Absent: all.')
      .optional(),
    vlanRanges: z
      .array(checked('vlan-range', isVlanRange, 'a VLAN id from 0 to 4094, or a range such as 100-199'))
      .max(64)
      .describe('Allowed values of vf.vlan in claims, which have to set it for VFs if the class does not.')
      .optional(),
    addressPools: z
      .array(poolLabel)
      .max(64)
      .describe(
        'Allowed values of addressPool.name in claims, if it is overridable. Closes other ways to choose addresses.',
      )
      .optional(),
    addressRanges: z.array(network).max(64).describe('Networks that must contain the addresses of claims.').optional(),
    routes: z
      .array(network)
      .max(64)
      .describe(
        'Networks that must contain the routes of claims, and the networks of their addresses outside of addressRanges. Default: all except default routes and networks of the node.',
      )
      .optional(),
    maxDevices: z.int().min(0).max(1024).describe('Maximum number of devices of the class in a claim.').optional(),
    maxAddresses: z.int().min(0).max(16).describe('Maximum number of addresses in a claim.').optional(),
    maxRoutes: z
      .int()
      .min(0)
      .max(64)
      .describe(
        'Maximum number of routes in a claim, with those to the networks of its addresses outside of addressRanges.',
      )
      .optional(),
  })
  .describe('Limits on claims of the class.');
export type ClassLimits = z.infer<typeof limits>;

/**
 * Configuration of a DeviceClass: a VFConfig, the fields that claims may set, and limits on claims. Described for users in
 * docs/vfconfig.md.
 */
export const classConfigSchema = vfConfigSchema.extend({
  overridable: z
    .array(z.enum(claimFields))
    .max(64)
    .describe('Fields that claims may set although the class sets them or they are closed.')
    .optional(),
  limits: limits.optional(),
});

/** Settings in one configuration of a class. */
export type ClassConfig = Omit<z.infer<typeof classConfigSchema>, 'apiVersion' | 'kind'>;
