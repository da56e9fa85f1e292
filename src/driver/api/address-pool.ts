import * as z from 'zod';
import { isNetwork, isUnicast, isWithin, parseCidr } from '../../node/netlink/index.ts';
import { isCidr, isHostAddress, isIpAddress } from './text-checks.ts';

/** Longest text of an IPv6 address with prefix length. */
const longestText = 49;

/** A name without dots: names of leases and keys are made of it, and cannot be mistaken for each other. */
export const poolLabel = z
  .string()
  .regex(/^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/, 'must be lower case letters, digits and "-", at most 63');

const networkRule = 'a network with prefix length of at least 8 bits and no host bits, of unicast addresses';
const withinRule = 'must be an address of the network';

const range = z
  .strictObject({
    network: z
      .string()
      .max(longestText)
      .refine(isPoolNetwork, `must be ${networkRule}`)
      .describe('Network of the addresses, such as 192.0.2.0/24. Interfaces get its prefix length.'),
    first: z
      .string()
      .max(longestText)
      .refine(isHostAddress, withinRule)
      .describe('First address. Default: that of the network.')
      .optional(),
    last: z
      .string()
      .max(longestText)
      .refine(isHostAddress, withinRule)
      .describe('Last address. Default: that of the network.')
      .optional(),
  })
  .superRefine(({ network, ...ends }, { addIssue }) => {
    if (!isPoolNetwork(network)) return;
    for (const [end, address] of Object.entries(ends)) {
      if (address === undefined || !isHostAddress(address) || isInNetwork(address, network)) continue;
      addIssue({ code: 'custom', path: [end], message: withinRule });
    }
  })
  .meta({
    'x-kubernetes-validations': [
      {
        rule: 'isCIDR(self.network) && cidr(self.network).masked() == cidr(self.network) && cidr(self.network).prefixLength() >= 8 && !cidr(self.network).ip().isUnspecified() && !cidr("0.0.0.0/8").containsIP(cidr(self.network).ip()) && !cidr("224.0.0.0/4").containsIP(cidr(self.network).ip()) && !cidr("ff00::/8").containsIP(cidr(self.network).ip())',
        message: `network: must be ${networkRule}`,
      },
      ...['first', 'last'].map((end) => ({
        rule: `!has(self.${end}) || (isIP(self.${end}) && isCIDR(self.network) && cidr(self.network).containsIP(ip(self.${end})))`,
        message: `${end}: ${withinRule}`,
      })),
    ],
  });

const excludeRule = 'must be an address, or a network with prefix length and no host bits';

/** `spec` of a NetworkAddressPool. The CustomResourceDefinition is generated from it, as that of NetworkDevicePolicy. */
export const networkAddressPoolSpec = z.strictObject({
  ranges: z.array(range).min(1).max(16).describe('The pool assigns one address of each IP version in them.'),
  exclude: z
    .array(
      z
        .string()
        .max(longestText)
        .refine((text) => isIpAddress(text) || isNetworkText(text), excludeRule),
    )
    .max(64)
    .meta({
      description: 'Addresses and networks that are not assigned, such as those of gateways.',
      'x-kubernetes-validations': [
        {
          rule: 'self.all(each, isIP(each) || (isCIDR(each) && cidr(each).masked() == cidr(each)))',
          message: excludeRule,
        },
      ],
    })
    .optional(),
});
export type AddressPoolSpec = z.infer<typeof networkAddressPoolSpec>;

/** Metadata belongs to the API server. */
export const networkAddressPoolSchema = z.strictObject({
  apiVersion: z.literal('netdra.dev/v1alpha1'),
  kind: z.literal('NetworkAddressPool'),
  metadata: z.looseObject({ name: poolLabel }),
  spec: networkAddressPoolSpec,
});

function isNetworkText(text: string): boolean {
  return isCidr(text) && isNetwork(parseCidr(text));
}

function isPoolNetwork(text: string): boolean {
  if (!isNetworkText(text)) return false;
  const network = parseCidr(text);
  return network.prefixLength >= 8 && network.octets[0] !== 0 && isUnicast(network);
}

function isInNetwork(address: string, network: string): boolean {
  return isWithin(parseCidr(`${address}/${address.includes(':') ? 128 : 32}`), parseCidr(network));
}
