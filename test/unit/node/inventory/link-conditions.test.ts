import { describe, expect, it } from 'vitest';
import type { NetworkDevice } from '../../../../src/node/inventory/index.ts';
import { type ConditionSources, readConditions } from '../../../../src/node/inventory/link-conditions.ts';
import type { Link } from '../../../../src/node/netlink/index.ts';
import { buildLink } from '../../../doubles/links.ts';

const pf = '0000:3b:00.0';
const vf = (vfIndex: number) =>
  ({ kind: 'vf', pciAddress: `0000:3b:02.${vfIndex}`, pfAddress: pf, vfIndex }) as NetworkDevice;
const link = (name: string, more: Partial<Link> = {}) => buildLink({ name, parentDevice: pf, ...more });
/** `no-carrier of PF ens1f0`; what is known to be in order has a `-` before it. */
const read = (links: Link[], more: Partial<ConditionSources> = {}) =>
  readConditions({
    pfs: [{ pciAddress: pf, driver: 'ice' }],
    devices: [vf(0), vf(1)],
    isHeld: () => false,
    linksOf: (pciAddress) => links.filter(({ parentDevice }) => parentDevice === pciAddress),
    ...more,
  })
    .filter(({ condition }) => condition !== 'missing-driver')
    .map(({ condition, isPresent, kind, pciAddress, interfaceName = pciAddress }) => {
      return `${isPresent ? '' : '-'}${condition} of ${kind} ${interfaceName}`;
    });
const noCarrier = { carrier: false };
const down = { up: false, carrier: false };

describe('readConditions', () => {
  it('reads the carrier of a PF that is up', () => {
    const wellReadings = ['no-carrier', 'pf-down', 'lacp-partner-lost'].map((name) => `-${name} of PF ens1f0`);
    expect(read([link('ens1f0')])).toEqual(wellReadings);
    expect(read([link('ens1f0', noCarrier)])).toContain('no-carrier of PF ens1f0');
  });

  it('reports a PF as down while its VFs are offered, without reading its carrier', () => {
    expect(read([link('ens1f0', down)])).toEqual(['pf-down of PF ens1f0', '-lacp-partner-lost of PF ens1f0']);
    expect(read([link('ens1f0')])).toContain('-pf-down of PF ens1f0');
    // Ports that nobody uses are usually down, and so is a NIC that is offered as a whole.
    expect(read([link('ens1f0', down)], { devices: [] })).toContain('-pf-down of PF ens1f0');
    const nic = { kind: 'nic', pciAddress: pf } as NetworkDevice;
    expect(read([link('ens1f0', down)], { pfs: [], devices: [nic] })).toEqual(['-lacp-partner-lost of NIC ens1f0']);
  });

  it('reports nothing for a PF whose interface is not visible', () => {
    expect(read([])).toEqual([]);
  });

  it('treats a card with two ports as up, or as connected, if one port is', () => {
    const ports = (one: Partial<Link>, other: Partial<Link>) => read([link('p0', one), link('p1', other)]);
    expect(ports(noCarrier, {})).toContain('-no-carrier of PF p0');
    expect(ports(noCarrier, noCarrier)).toContain('no-carrier of PF p0');
    expect(ports(noCarrier, down)).toEqual(['no-carrier of PF p0', '-pf-down of PF p0', '-lacp-partner-lost of PF p0']);
    expect(ports({}, down)).toContain('-no-carrier of PF p0');
    expect(ports(down, down)).toEqual(['pf-down of PF p0', '-lacp-partner-lost of PF p0']);
  });

  it('reads the LACP partner of a PF that is a bond port', () => {
    expect(read([link('ens1f0', { lacpPartnerInSync: true })])).toContain('-lacp-partner-lost of PF ens1f0');
    expect(read([link('ens1f0', { lacpPartnerInSync: false })])).toContain('lacp-partner-lost of PF ens1f0');
  });

  it("reads the carrier of each VF's representor, not that of the uplink", () => {
    const uplink = link('ens1f0', { portName: 'p0' });
    const of = (vfIndex: number, more: Partial<Link>) =>
      link(`rep${vfIndex}`, { portName: `pf0vf${vfIndex}`, ...more });
    const own = link('ens1f0v1', { parentDevice: '0000:3b:02.1' });
    const links = [uplink, of(0, {}), of(1, noCarrier), link('c1', { portName: 'c1pf0vf0', ...noCarrier })];
    const port = ['no-carrier', 'pf-down', 'lacp-partner-lost'].map((name) => `-${name} of PF ens1f0`);
    expect(read([...links, own])).toEqual([...port, '-no-carrier of VF rep0', 'no-carrier of VF rep1']);
    // With some cards it only says that the interface of the VF is down.
    expect(read([...links, { ...own, ...down }])).toEqual([...port, '-no-carrier of VF rep0']);
    expect(read(links, { isHeld: () => true })).toContain('no-carrier of VF rep1');
    expect(read([uplink, of(0, down)])).toEqual(port);
  });

  it('handles whole NICs, and PFs without a kernel driver', () => {
    const nic = { kind: 'nic', pciAddress: '0000:81:00.0' } as NetworkDevice;
    const links = [link('ensN', { parentDevice: nic.pciAddress, ...noCarrier })];
    const ofNic = ['no-carrier of NIC ensN', '-lacp-partner-lost of NIC ensN'];
    expect(read(links, { pfs: [], devices: [nic] })).toEqual(ofNic);
    const drivers = readConditions({
      devices: [],
      linksOf: () => [],
      isHeld: () => false,
      pfs: [{ pciAddress: 'a', driver: 'vfio-pci' }, { pciAddress: 'b' }],
    });
    expect(drivers).toEqual([
      { kind: 'PF', pciAddress: 'a', condition: 'missing-driver', isPresent: false },
      { kind: 'PF', pciAddress: 'b', condition: 'missing-driver', isPresent: true },
    ]);
  });
});
