import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { validateDevices } from '../../../../src/framework/metadata/index.ts';
import { type Address, decodeAddress, encodeAddress } from '../../../../src/node/netlink/address.ts';
import type { Link } from '../../../../src/node/netlink/link.ts';
import { findVf, toNetworkState } from '../../../../src/node/netlink/network-state.ts';
import { buildLink } from '../../../doubles/links.ts';

const address = (cidr: string, more: Partial<Address> = {}): Address => ({
  index: 3,
  cidr,
  scope: 'global',
  tentative: false,
  dadFailed: false,
  ...more,
});
const linkLocal = (more: Partial<Address> = {}) => address('fe80::1/64', { scope: 'link', ...more });

/** The part of the state that is about addresses. */
function reportedAddresses(addresses: Address[]) {
  const {
    interfaceName: _name,
    hardwareAddress: _mac,
    mtuBytes: _mtu,
    linkUp: _up,
    ...reported
  } = toNetworkState(buildLink({ index: 3, name: 'net1' }), addresses);
  return reported;
}

describe('toNetworkState', () => {
  it('reports global addresses in order, without duplicates and without link-local addresses', () => {
    const addresses = [address('2001:db8::1/64'), address('10.0.0.1/24'), linkLocal(), address('10.0.0.1/24')];
    expect(reportedAddresses(addresses)).toEqual({ ips: ['10.0.0.1/24', '2001:db8::1/64'], tentative: false });
  });

  it('leaves out IPv4-mapped IPv6 addresses, which Kubernetes refuses', () => {
    const written = ['::ffff:10.0.0.1/64', '::ffff:10.0.0.2/120', '::ffff:0:1:2/64', '::ffff:10.0.0.1/0'];
    const addresses = written.map((cidr) => ({
      ...decodeAddress(Buffer.concat(encodeAddress(3, cidr)))!,
      tentative: false,
    }));
    const { ips } = reportedAddresses(addresses);
    expect(ips).toEqual(['10.0.0.2/24', '::ffff:0:1:2/64']);
    const device = { driver: 'd', pool: 'p', name: 'n', networkData: { ips } };
    expect(() => validateDevices({ namespace: 'a', name: 'c', uid: 'u' }, 'r', [device])).not.toThrow();
  });

  it('reports link-local addresses if there are no other addresses', () => {
    expect(reportedAddresses([linkLocal()])).toEqual({ ips: ['fe80::1/64'], tentative: false });
  });

  it('does not wait for a tentative link-local address if there is a global address', () => {
    const addresses = [address('10.0.0.1/24'), linkLocal({ tentative: true })];
    expect(reportedAddresses(addresses)).toEqual({ ips: ['10.0.0.1/24'], tentative: false });
  });

  it('reports that there are tentative addresses, and reports no link-local address in their place', () => {
    const addresses = [address('2001:db8::1/64', { tentative: true }), linkLocal()];
    expect(reportedAddresses(addresses)).toEqual({ ips: [], tentative: true });
  });

  it('reports duplicate addresses separately, and no host-scope addresses', () => {
    const addresses = [
      address('2001:db8::1/64', { dadFailed: true, tentative: true }),
      address('127.0.0.1/8', { scope: 'host' }),
    ];
    expect(reportedAddresses(addresses)).toEqual({ ips: [], tentative: false, duplicates: ['2001:db8::1/64'] });
  });

  it('lists addresses that duplicate address detection can still reject', () => {
    const addresses = [address('2001:db8::1/64', { optimistic: true }), address('2001:db8::2/64')];
    const ips = ['2001:db8::1/64', '2001:db8::2/64'];
    expect(reportedAddresses(addresses)).toEqual({ ips, tentative: false, unconfirmed: ['2001:db8::1/64'] });
  });

  it('leaves out temporary addresses', () => {
    const addresses = [address('2001:db8::1/64', { dynamic: true, temporary: true, dadFailed: true }), linkLocal()];
    expect(reportedAddresses(addresses)).toEqual({ ips: ['fe80::1/64'], tentative: false });
  });

  it.each([
    ['2001:db8::1/64', { dynamic: true }, true],
    ['2001:db8::1/64', { dynamic: true, optimistic: true }, true],
    ['2001:db8::1/64', {}, undefined],
    ['2001:db8::1/64', { dynamic: true, tentative: true }, undefined],
    ['2001:db8::1/64', { dynamic: true, dadFailed: true }, undefined],
    ['2001:db8::1/64', { dynamic: true, temporary: true }, undefined],
    ['fe80::1/64', { dynamic: true, scope: 'link' }, undefined],
    ['10.0.0.1/24', { dynamic: true }, undefined],
  ] as const)('reports whether %s with %j is a usable address from a router: %s', (cidr, more, expected) => {
    expect(reportedAddresses([address(cidr, more)]).isAutoconfigured).toBe(expected);
  });

  it('omits addresses from routers first if there are more addresses than the API allows', () => {
    const routers = Array.from({ length: 16 }, (_, index) => address(`10.0.0.${index}/24`, { dynamic: true }));
    const { ips } = reportedAddresses([...routers, address('192.0.2.1/24'), address('192.0.2.2/24')]);
    expect(ips).toHaveLength(16);
    expect(ips.slice(-2)).toEqual(['192.0.2.1/24', '192.0.2.2/24']);
  });

  it('reports at most as many addresses as the API allows, and always the same ones', () =>
    fc.assert(
      fc.property(fc.shuffledSubarray(Array.from({ length: 40 }, (_, i) => address(`10.0.0.${i}/24`))), (addresses) => {
        const { ips } = reportedAddresses(addresses);
        expect(ips.length).toBe(Math.min(16, addresses.length));
        expect(ips).toEqual(reportedAddresses([...addresses].reverse()).ips);
      }),
    ));
});

const link = (index: number, more: Partial<Link> = {}) => buildLink({ index, name: `eth${index}`, ...more });
const pciAddress = '0000:3b:02.1';
const hardwareAddress = '02:00:00:00:00:07';

describe('findVf', () => {
  it('never mistakes a representor with the same bus address for the device', () => {
    const [other, port] = ['pf0hpf', 'p0'].map((portName, index) =>
      link(index, { parentDevice: pciAddress, portName }),
    );
    expect(findVf([other!, port!], { pciAddress })).toBe(port);
  });

  it.each(['veth', 'macvlan', 'dummy'])('does not mistake a %s for a hardware VF, whatever its address', (kind) => {
    const fake = link(7, { name: 'x', kind, hardwareAddress: '02:00:00:00:00:01' });
    const key = { pciAddress: '0000:3b:02.0', hardwareAddress: '02:00:00:00:00:01' };
    expect(findVf([fake], key)).toBeUndefined();
    // Kernels before 5.14 do not tell the bus address.
    const { kind: _, ...real } = fake;
    expect(findVf([real], key)?.name).toBe('x');
    expect(findVf([real, fake], key)).toEqual(real);
  });

  it('finds a link by the bus address before anything else', () => {
    const right = link(2, { parentDevice: pciAddress });
    const links = [link(1, { alias: 'x', hardwareAddress }), right];
    expect(findVf(links, { pciAddress, alias: 'x', hardwareAddress })).toBe(right);
  });

  it('uses alias and address if the kernel reports no bus address', () => {
    const byAlias = link(1, { alias: 'netdra:x' });
    const byAddress = link(3, { hardwareAddress });
    const links = [byAddress, byAlias];
    expect(findVf(links, { pciAddress, alias: 'netdra:x', hardwareAddress })).toBe(byAlias);
    expect(findVf(links, { pciAddress, hardwareAddress: hardwareAddress.toUpperCase() })).toBe(byAddress);
  });

  it("never returns a link of another device, even if the link has the VF's address", () => {
    const other = link(1, { parentDevice: '0000:3b:02.2', hardwareAddress, alias: 'x' });
    expect(findVf([other], { pciAddress, alias: 'x', hardwareAddress })).toBeUndefined();
  });

  it('returns nothing for two links with the same address', () => {
    const links = [link(1, { hardwareAddress }), link(2, { hardwareAddress })];
    expect(findVf(links, { hardwareAddress })).toBeUndefined();
  });

  it('returns nothing for an empty key', () => {
    expect(findVf([link(1), link(2)], {})).toBeUndefined();
  });
});
