import type { LinkChange } from './link.ts';

/** Remedies for the kernel's errors, by request. */
const gatewayHint = 'the gateway must be in a network of the interface';
const mtuHint = 'the MTU may exceed the maximum of the interface, or the MTU of its PF: ip -d link shows both';
const offloadHint = 'the limits may exceed tso_max_size of the interface: ip -d link shows it';
/** Returns the hints for a request that changes properties of a link. */
export function changeHints({ name = 'of the link', mtuBytes, offloadLimits }: LinkChange): Record<string, string> {
  return {
    EEXIST: `the name ${name} is taken`,
    ...(offloadLimits !== undefined && { EINVAL: offloadHint }),
    ...(mtuBytes !== undefined && { EINVAL: mtuHint, ERANGE: mtuHint }),
  };
}

export const routeHints = {
  ENETUNREACH: gatewayHint, // IPv4
  EHOSTUNREACH: gatewayHint, // IPv6
  EEXIST:
    'another interface already has this route, for example eth0 the default route: omit the route, or give it another metric or table',
  EINVAL: 'the source must be an address of the interface, and the gateway must not be one',
  ENETDOWN: 'set the interface up first',
};

const noRulesHint =
  'the kernel has no policy routing: it needs CONFIG_IP_MULTIPLE_TABLES and CONFIG_IPV6_MULTIPLE_TABLES';
export const ruleHints = { EAFNOSUPPORT: noRulesHint, ENOTSUP: noRulesHint };

export const neighborHints = {
  EINVAL: 'neighbors need an Ethernet interface, those of IPv6 also an MTU of 1280 and disable_ipv6 0',
};

const ipv6OffHint = 'IPv6 is off for the interface: it needs an MTU of 1280, and disable_ipv6 must be 0 for it';
export const ipv6Hints = {
  EACCES: ipv6OffHint,
  ENOBUFS: ipv6OffHint,
  EINVAL: ipv6OffHint,
  EAFNOSUPPORT: 'the kernel has no IPv6',
  ENOTSUP: 'the kernel has no IPv6',
};

export const hintsFor = (cidr: string) => (cidr.includes(':') ? ipv6Hints : {});

export const newLinkHints = { EEXIST: 'a link of that name exists', ENOTSUP: 'load the kernel module of such links' };
