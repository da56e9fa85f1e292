import * as z from 'zod';
import { type Cidr, isNetwork, isWithin, parseCidr } from '../../node/netlink/index.ts';
import { isCidr, isHostAddress, isIpAddress } from './text-checks.ts';

/** Length of the longest IPv6 address with prefix length, in characters. */
const longestText = 49;

/** Name of a pool, or a key. Names of leases join the pool's name and the address with dots, so dots are not allowed. */
export const poolLabel = z
  .string()
  .regex(/^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/, 'must be lower case letters, digits and "-", at most 63');

const networkRule = 'a network with prefix length of at least 8 bits and no host bits, of unicast addresses';
const withinRule = 'must be an address of the network';
const orderRule = 'must not be after last';
/** Networks that pools cannot assign from: this host, loopback, link-local, multicast and broadcast. */
const unusableNetworks = [
  '0.0.0.0/8',
  '127.0.0.0/8',
  '169.254.0.0/16',
  '224.0.0.0/4',
  '255.255.255.255/32',
  '::1/128',
  'fe80::/10',
  'ff00::/8',
];

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
    const [first, last] = [ends.first, ends.last].map(
      (end) => end !== undefined && isIpAddress(end) && toHost(end).octets,
    );
    if (first && last && Buffer.compare(first, last) > 0)
      addIssue({ code: 'custom', path: ['first'], message: orderRule });
  })
  .meta({
    'x-kubernetes-validations': [
      {
        rule: [
          'isCIDR(self.network) && cidr(self.network).masked() == cidr(self.network) && cidr(self.network).prefixLength() >= 8 && !cidr(self.network).ip().isUnspecified()',
          ...unusableNetworks.map((each) => `!cidr("${each}").containsIP(cidr(self.network).ip())`),
        ].join(' && '),
        message: `network: must be ${networkRule}`,
      },
      ...['first', 'last'].map((end) => ({
        rule: `!has(self.${end}) || (isIP(self.${end}) && isCIDR(self.network) && cidr(self.network).containsIP(ip(self.${end})))`,
        message: `${end}: ${withinRule}`,
      })),
    ],
  });

const excludeRule = 'must be an address, or a network with prefix length and no host bits';

/** `spec` of a NetworkAddressPool. The CustomResourceDefinition is generated from this schema. */
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

/** A whole NetworkAddressPool. The API server checks all metadata except the name. */
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
  const isZero = network.octets.every((octet) => octet === 0);
  const first = toHost(text.split('/')[0] ?? '');
  return network.prefixLength >= 8 && !isZero && !unusableNetworks.some((each) => isWithin(first, parseCidr(each)));
}

function isInNetwork(address: string, network: string): boolean {
  return isWithin(toHost(address), parseCidr(network));
}

function toHost(address: string): Cidr {
  return parseCidr(`${address}/${address.includes(':') ? 128 : 32}`);
}
