import { describe, expect, it } from 'vitest';
import { fromClass } from '../claims/driver-bench.ts';
import { resolve } from './claim-with.ts';

const chain = (name: string) => ({ cniVersion: '1.0.0', name, plugins: [{ type: 'host-device' }] });

describe('findContradictions', () => {
  it.each([
    [{ attach: 'cni' }, /: attach: "cni" needs either cni or networkAttachmentDefinition, and has none$/],
    [
      { attach: 'cni', cni: chain('a'), networkAttachmentDefinition: { name: 'a' } },
      /: attach: "cni" needs either cni or networkAttachmentDefinition, and has both$/,
    ],
    [{ cni: chain('a') }, /: cni: needs attach: cni, and attach is "netlink"$/],
    [
      { attach: 'observe', networkAttachmentDefinition: { name: 'a' } },
      /: networkAttachmentDefinition: needs attach: cni/,
    ],
    [{ attach: 'cni', cni: chain('a'), mtu: 1400 }, /: mtu: cannot be combined with attach "cni"$/],
    [
      {
        neighbors: [
          { address: '2001:db8::9', macAddress: '02:00:00:00:00:09' },
          { address: '2001:DB8:0::9', macAddress: '02:00:00:00:00:0a' },
        ],
      },
      /: neighbors\[1\]: 2001:db8::9 has MAC 02:00:00:00:00:0a, but 02:00:00:00:00:09 in neighbors\[0\]$/,
    ],
    [
      { bond: { name: 'bond0' }, neighbors: [{ address: '192.0.2.9', macAddress: '02:00:00:00:00:09' }] },
      /: neighbors: active-backup bond bond0 keeps neighbors only with bond\.failOverMac none: the kernel removes them/,
    ],
    [
      {
        bond: { name: 'bond0', failOverMac: 'follow' },
        neighbors: [{ address: '192.0.2.9', macAddress: '02:00:00:00:00:09' }],
      },
      /: neighbors: active-backup bond bond0 keeps neighbors only with bond\.failOverMac none/,
    ],
    [
      { addresses: ['192.0.2.7/24'], routes: [{ destination: '192.0.2.0/24', gateway: '192.0.2.1' }] },
      /: routes\[0\]: the kernel already has a route to 192\.0\.2\.0\/24, the network of 192\.0\.2\.7: give this one a metric or a table$/,
    ],
    [
      {
        addresses: ['192.0.2.7/24', '192.0.2.8/24'],
        routes: [{ destination: '192.0.2.0/24', source: '192.0.2.8' }],
      },
      /: routes\[0\]: the kernel already has a route to 192\.0\.2\.0\/24/,
    ],
    [
      {
        routes: [
          { destination: '2001:db8:1::/48', nextHops: [{ gateway: '2001:db8::1' }, { gateway: '2001:DB8:0::1' }] },
        ],
      },
      /: routes\[0\]: nextHops has 2001:db8::1 twice: give it a weight instead$/,
    ],
    [
      { bond: { name: 'bond0', arpInterval: 100, arpTargets: ['192.0.2.1', '192.0.2.2', '192.0.2.1'] } },
      /: bond: arpTargets of bond0 has 192\.0\.2\.1 twice$/,
    ],
    [{ attach: 'observe', interfaceName: 'net1' }, /: interfaceName: cannot be combined with attach "observe"$/],
    [
      { attach: 'observe', ipam: { type: 'dhcp' }, addresses: ['192.0.2.1/24'] },
      /: ipam: cannot be combined with attach "observe"; addresses: cannot be combined with attach "observe"$/,
    ],
    [
      { attach: 'observe', driver: 'vfio-pci' },
      /: attach: with vfio-pci there is no interface that observe could attach$/,
    ],
    [{ driver: 'vfio-pci', routes: [{ destination: '10.0.0.0/8' }] }, /: routes: needs an interface/],
    [
      {
        routes: [
          { destination: '2001:db8::/64', gateway: '2001:db8:1::1' },
          { destination: '2001:DB8:0::/64', gateway: '2001:db8:1::2' },
        ],
      },
      /: routes\[1\]: routes\[0\] has the same destination 2001:db8::\/64, but another gateway or other settings$/,
    ],
    [
      { mtu: 1279, addresses: ['192.0.2.1/24', '2001:db8::1/64'] },
      /: addresses\[1\]: 2001:db8::1\/64 is IPv6, which needs an mtu of at least 1280, and mtu is 1279$/,
    ],
    [
      { mtu: 1200, routes: [{ destination: '2001:db8:1::/48' }] },
      /: routes\[0\]: 2001:db8:1::\/48 is IPv6, which needs an mtu of at least 1280, and mtu is 1200$/,
    ],
    [
      { addresses: ['2001:db8::1/64'], sysctls: { 'net.ipv6.conf.IFNAME.disable_ipv6': '1' } },
      /: addresses\[0\]: 2001:db8::1\/64 is IPv6, and sysctls sets net\.ipv6\.conf\.IFNAME\.disable_ipv6 to 1$/,
    ],
    [
      { mtu: 1279, slaac: { waitSeconds: 5 } },
      /: slaac: it is IPv6, which needs an mtu of at least 1280, and mtu is 1279$/,
    ],
    [
      { slaac: { waitSeconds: 5 }, sysctls: { 'net.ipv6.conf.IFNAME.disable_ipv6': 1 } },
      /: slaac: it is IPv6, and sysctls sets net\.ipv6\.conf\.IFNAME\.disable_ipv6 to 1$/,
    ],
    ...['accept_ra', 'accept_ra_pinfo', 'autoconf'].map((key): [object, RegExp] => [
      { slaac: { waitSeconds: 0 }, sysctls: { [`net.ipv6.conf.IFNAME.${key}`]: '0' } },
      new RegExp(`: slaac: sysctls sets net\\.ipv6\\.conf\\.IFNAME\\.${key} to 0$`),
    ]),
    [
      {
        slaac: { waitSeconds: 0 },
        sysctls: { 'net.ipv6.conf.IFNAME.forwarding': '1', 'net.ipv6.conf.IFNAME.accept_ra': 1 },
      },
      /: slaac: sysctls sets net\.ipv6\.conf\.IFNAME\.forwarding to 1, which needs net\.ipv6\.conf\.IFNAME\.accept_ra 2, and it is 1$/,
    ],
    [{ driver: 'vfio-pci', slaac: { waitSeconds: 0 } }, /: slaac: needs an interface, and vfio-pci gives none$/],
    [{ attach: 'observe', slaac: { waitSeconds: 0 } }, /: slaac: cannot be combined with attach "observe"$/],
    [{ attach: 'cni', cni: chain('a'), slaac: { waitSeconds: 0 } }, /: slaac: cannot be combined with attach "cni"$/],
    [{ driver: 'mlx5_vfio_pci', rdma: true }, /: rdma: needs an interface, and mlx5_vfio_pci gives none$/],
    [{ driver: 'vfio-pci', sysctls: { 'net.ipv4.conf.IFNAME.arp_ignore': 1 } }, /: sysctls: needs an interface/],
    [{ attach: 'observe', bond: { name: 'bond0' } }, /: bond: bond0 cannot be combined with attach "observe"$/],
    [
      { attach: 'cni', cni: chain('a'), bond: { name: 'bond0' } },
      /: bond: bond0 cannot be combined with attach "cni"$/,
    ],
    [
      { vf: { linkState: 'enable' }, bond: { name: 'bond0' } },
      /: vf\.linkState: "enable" keeps the link up .* bond bond0, which checks links by miimon, never fails over/,
    ],
    [{ driver: 'vfio-pci', bond: { name: 'bond0' } }, /: bond: bond0 cannot be combined with driver "vfio-pci"$/],
    [
      { keepHostConfig: true, addresses: ['192.0.2.1/24'], bond: { name: 'bond0' } },
      /: addresses: is \["192\.0\.2\.1\/24"\], but keepHostConfig takes the addresses of the host; bond: is \{"name":"bond0"\}, but/,
    ],
    ...[{ addresses: ['192.0.2.1/24'] }, { ipam: { type: 'static' } }, { bond: { name: 'bond0' } }].map(
      (other): [object, RegExp] => [
        { addressPool: { name: 'lan' }, ...other },
        new RegExp(`: ${Object.keys(other)[0]}: cannot be combined with addressPool \\{"name":"lan"\\}`),
      ],
    ),
    [{ attach: 'observe', addressPool: { name: 'lan' } }, /: addressPool: cannot be combined with attach "observe"$/],
    [{ keepHostConfig: true, addressPool: { name: 'lan' } }, /: addressPool: is \{"name":"lan"\}, but keepHostConfig/],
    [{ keepHostConfig: true, slaac: { waitSeconds: 0 } }, /: slaac: is \{"waitSeconds":0\}, but keepHostConfig takes/],
    [{ keepHostConfig: true, ipam: { type: 'dhcp' } }, /: ipam: is \{"type":"dhcp"\}, but keepHostConfig takes/],
    [{ ipam: { type: 'dhcp' }, driver: 'vfio-pci' }, /: ipam: type dhcp needs an interface, and vfio-pci gives none$/],
    [{ ipam: { type: 'dhcp' }, bond: { name: 'bond0' } }, /: ipam: type dhcp cannot be combined with bond bond0$/],
    [{ keepHostConfig: true, attach: 'observe' }, /: keepHostConfig: cannot be combined with attach "observe"$/],
    [{ keepHostConfig: true, driver: 'vfio-pci' }, /: keepHostConfig: needs an interface, and vfio-pci gives none$/],
    [{ ethtool: { rings: { rx: 64 } }, attach: 'observe' }, /: ethtool: cannot be combined with attach "observe"$/],
    [{ ethtool: { rings: { rx: 64 } }, driver: 'vfio-pci' }, /: ethtool: needs an interface, and vfio-pci gives none$/],
    [{ vrf: { name: 'red', table: 10 }, attach: 'observe' }, /: vrf: cannot be combined with attach "observe"$/],
    [{ vrf: { name: 'red', table: 10 }, driver: 'vfio-pci' }, /: vrf: needs an interface, and vfio-pci gives none$/],
    [
      { vrf: { name: 'red', table: 10 }, keepHostConfig: true },
      /: vrf: is \{"name":"red","table":10\}, but keepHostConfig takes the addresses of the host$/,
    ],
    [
      { vrf: { name: 'red', table: 10 }, rules: [{ priority: 7, source: '192.0.2.7/32', table: 100 }] },
      /: rules: rules\[0\] is 7: from 192\.0\.2\.7\/32 in table 100, and vrf red has table 10: use one of both$/,
    ],
    [
      { vrf: { name: 'red', table: 10 }, routes: [{ destination: '198.51.100.0/24', table: 11 }] },
      /: routes\[0\]: table is 11, and vrf red has table 10$/,
    ],
    [
      {
        vrf: { name: 'red', table: 10 },
        addresses: ['192.0.2.7/24'],
        routes: [{ destination: '192.0.2.0/24', gateway: '192.0.2.1' }],
      },
      /: routes\[0\]: the kernel already has a route to 192\.0\.2\.0\/24, the network of 192\.0\.2\.7: /,
    ],
    [{ vf: { qos: 3 } }, /: vf\.qos: needs vf\.vlan from 1 to 4094$/],
    [{ vf: { vlan: 0, vlanProto: '802.1ad' } }, /: vf\.vlanProto: needs vf\.vlan from 1 to 4094$/],
    [{ vf: { minTxRate: 100, maxTxRate: 10 } }, /: vf\.minTxRate: must not be above vf\.maxTxRate$/],
    [{ attach: 'cni', cni: { cniVersion: '1.0.0', plugins: [] } }, /CNI network of claim default\/fast-net: plugins: /],
    [{ ipam: { type: '../evil' } }, /IPAM configuration of claim default\/fast-net: type: /],
  ])('rejects the conflicting fields %j', (parameters, message) => {
    expect(() => resolve([fromClass(parameters)])).toThrow(message);
  });

  it.each([
    { attach: 'cni', cni: chain('a'), interfaceName: 'net1', macAddress: '02:00:00:00:00:01', vf: { vlan: 7 } },
    { driver: 'vfio-pci', addresses: ['192.0.2.1/24'], mtu: 9000, interfaceName: 'dpdk0', vhost: true },
    { driver: 'kernel', rdma: true },
    { vf: { minTxRate: 100, maxTxRate: 0 } },
    { keepHostConfig: true, routes: [{ destination: '198.51.100.0/24' }], addresses: [] },
    { keepHostConfig: false, addresses: ['192.0.2.1/24'] },
    {
      addresses: ['192.0.2.7/24', '198.51.100.7/32', '2001:db8::7/64'],
      routes: [
        { destination: '192.0.2.0/24', source: '192.0.2.7' },
        { destination: '192.0.2.0/24', gateway: '192.0.2.1', metric: 7 },
        { destination: '192.0.2.0/24', gateway: '192.0.2.1', table: 100 },
        { destination: '198.51.100.7/32', gateway: '192.0.2.1' },
        { destination: '2001:db8::/64', gateway: '2001:db8::1' },
      ],
    },
    {
      bond: { name: 'bond0', failOverMac: 'none' },
      neighbors: [{ address: '192.0.2.9', macAddress: '02:00:00:00:00:09' }],
    },
    {
      bond: { name: 'bond0', mode: '802.3ad' },
      neighbors: [{ address: '192.0.2.9', macAddress: '02:00:00:00:00:09' }],
    },
    { mtu: 1279, addresses: ['192.0.2.1/24'], sysctls: { 'net.ipv6.conf.IFNAME.disable_ipv6': 1 } },
    { mtu: 1280, slaac: { waitSeconds: 0 }, sysctls: { 'net.ipv6.conf.IFNAME.accept_ra': 1 } },
    { slaac: { waitSeconds: 0 }, sysctls: { 'net.ipv6.conf.IFNAME.forwarding': 1 } },
    {
      slaac: { waitSeconds: 0 },
      sysctls: { 'net.ipv6.conf.IFNAME.forwarding': 1, 'net.ipv6.conf.IFNAME.accept_ra': '2' },
    },
    {
      slaac: { waitSeconds: 0 },
      sysctls: { 'net.ipv6.conf.IFNAME.forwarding': '0', 'net.ipv6.conf.IFNAME.accept_ra': 1 },
    },
    { sysctls: { 'net.ipv6.conf.IFNAME.forwarding': 1, 'net.ipv6.conf.IFNAME.accept_ra': 1 } },
    { mtu: 1280, addresses: ['2001:db8::1/64'], sysctls: { 'net.ipv6.conf.IFNAME.disable_ipv6': 0 } },
  ])('accepts %j', (parameters) => {
    expect(resolve([fromClass(parameters)])).toEqual(parameters);
  });
});
