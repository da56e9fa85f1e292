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
    isInPod: () => false,
    linksOf: (pciAddress) => links.filter(({ parentDevice }) => parentDevice === pciAddress),
    ...more,
  })
    .filter(({ condition }) => condition !== 'missing-driver')
    // Of the VFs, only those that the test has a representor for.
    .filter(({ kind, interfaceName }) => kind !== 'VF' || interfaceName !== undefined)
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

  it('reports pf-down instead of no-carrier for a PF that is down, but only if its VFs are offered', () => {
    const isDown = ['-no-carrier of PF ens1f0', 'pf-down of PF ens1f0', '-lacp-partner-lost of PF ens1f0'];
    expect(read([link('ens1f0', down)])).toEqual(isDown);
    expect(read([link('ens1f0')])).toContain('-pf-down of PF ens1f0');
    // Ports that nobody uses are usually down, and so is a NIC that is offered as a whole.
    expect(read([link('ens1f0', down)], { devices: [] })).toContain('-pf-down of PF ens1f0');
    const nic = { kind: 'nic', pciAddress: pf } as NetworkDevice;
    const ofNic = ['-no-carrier of NIC ens1f0', '-lacp-partner-lost of NIC ens1f0'];
    expect(read([link('ens1f0', down)], { pfs: [], devices: [nic] })).toEqual(ofNic);
  });

  it('reports nothing for a PF whose interface is not visible, nor for its VFs', () => {
    const readings = readConditions({
      pfs: [{ pciAddress: pf, driver: 'ice' }],
      devices: [vf(0)],
      isInPod: () => true,
      linksOf: () => [],
    });
    expect(readings.map(({ condition, isPresent }) => [condition, isPresent])).toEqual([['missing-driver', false]]);
  });

  it('treats a card with two ports as up or connected if at least one of the ports is', () => {
    const ports = (one: Partial<Link>, other: Partial<Link>) => read([link('p0', one), link('p1', other)]);
    expect(ports(noCarrier, {})).toContain('-no-carrier of PF p0');
    expect(ports(noCarrier, noCarrier)).toContain('no-carrier of PF p0');
    expect(ports(noCarrier, down)).toEqual(['no-carrier of PF p0', '-pf-down of PF p0', '-lacp-partner-lost of PF p0']);
    expect(ports({}, down)).toContain('-no-carrier of PF p0');
    expect(ports(down, down)).toEqual(['-no-carrier of PF p0', 'pf-down of PF p0', '-lacp-partner-lost of PF p0']);
  });

  it('reads the LACP partner of a PF that is a bond port', () => {
    expect(read([link('ens1f0', { lacpPartnerInSync: true })])).toContain('-lacp-partner-lost of PF ens1f0');
    expect(read([link('ens1f0', { lacpPartnerInSync: false })])).toContain('lacp-partner-lost of PF ens1f0');
  });

  it('reads the carrier of each VF from its representor, not from the uplink', () => {
    const uplink = link('ens1f0', { portName: 'p0' });
    const of = (vfIndex: number, more: Partial<Link>) =>
      link(`rep${vfIndex}`, { portName: `pf0vf${vfIndex}`, ...more });
    const own = link('ens1f0v1', { parentDevice: '0000:3b:02.1' });
    const links = [uplink, of(0, {}), of(1, noCarrier), link('c1', { portName: 'c1pf0vf0', ...noCarrier })];
    const port = ['no-carrier', 'pf-down', 'lacp-partner-lost'].map((name) => `-${name} of PF ens1f0`);
    expect(read([...links, own])).toEqual([...port, '-no-carrier of VF rep0', 'no-carrier of VF rep1']);
    // With some cards it only says that the interface of the VF is down.
    const well = [...port, '-no-carrier of VF rep0', '-no-carrier of VF rep1'];
    expect(read([...links, { ...own, ...down }])).toEqual(well);
    expect(read(links)).toEqual(well);
    expect(read([...links, { ...own, ...down }], { isInPod: () => true })).toEqual(well);
    expect(read(links, { isInPod: () => true })).toContain('no-carrier of VF rep1');
    expect(read([uplink, of(0, down)], { isInPod: () => true })).toEqual([...port, '-no-carrier of VF rep0']);
  });

  it('reads the carrier of whole NICs, and reports PFs without a kernel driver', () => {
    const nic = { kind: 'nic', pciAddress: '0000:81:00.0' } as NetworkDevice;
    const links = [link('ensN', { parentDevice: nic.pciAddress, ...noCarrier })];
    const ofNic = ['no-carrier of NIC ensN', '-lacp-partner-lost of NIC ensN'];
    expect(read(links, { pfs: [], devices: [nic] })).toEqual(ofNic);
    const drivers = readConditions({
      devices: [],
      linksOf: () => [],
      isInPod: () => false,
      pfs: [{ pciAddress: 'a', driver: 'vfio-pci' }, { pciAddress: 'b' }],
    });
    expect(drivers).toEqual([
      { kind: 'PF', pciAddress: 'a', condition: 'missing-driver', isPresent: false },
      { kind: 'PF', pciAddress: 'b', condition: 'missing-driver', isPresent: true },
    ]);
  });
});
