import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { deviceAttributes, linkIdentity, maxAttributes, type VfDevice } from '../../../src/sriov/device.ts';
import { formatDeviceName, isPciAddress } from '../../../src/sriov/pci-address.ts';

const vf: VfDevice = {
  name: '0000-3b-02-1',
  pciAddress: '0000:3b:02.1',
  pfAddress: '0000:3b:00.0',
  pfName: 'ens1f0',
  vfIndex: 1,
  vendor: '8086',
  device: '154c',
  driver: 'iavf',
  interfaceName: 'ens1f0v1',
  numaNode: 1,
  pcieRoot: 'pci0000:3a',
  iommuGroup: '41',
  hardwareAddress: '02:00:00:00:00:0a',
  mtuBytes: 9000,
  simulated: false,
};

describe('formatDeviceName', () => {
  it('gives a DNS label, another for every address', () =>
    fc.assert(
      fc.property(fc.nat(0xffff), fc.nat(0xff), fc.nat(0x1f), fc.nat(7), (domain, bus, slot, fn) => {
        const hex = (value: number, digits: number) => value.toString(16).padStart(digits, '0');
        const address = `${hex(domain, 4)}:${hex(bus, 2)}:${hex(slot, 2)}.${fn}`;
        expect(isPciAddress(address)).toBe(true);
        expect(formatDeviceName(address)).toMatch(/^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/);
        const [a, b, c, d] = formatDeviceName(address).split('-');
        expect(`${a}:${b}:${c}.${d}`).toBe(address);
      }),
    ));

  it.each(['3b:02.1', '0000:3b:02', '0000:3B:02.1', '0000:3b:02.8', '0000:3b:02.1\n', ''])('%j is no address', (text) =>
    expect(isPciAddress(text)).toBe(false),
  );
});

describe('deviceAttributes', () => {
  it('has the well-known names and ours, in the form of the API', () => {
    expect(deviceAttributes(vf)).toEqual({
      'resource.kubernetes.io/pciBusID': { string: '0000:3b:02.1' },
      'resource.kubernetes.io/pcieRoot': { string: 'pci0000:3a' },
      'resource.kubernetes.io/numaNode': { int: 1 },
      pciAddress: { string: '0000:3b:02.1' },
      pfPciAddress: { string: '0000:3b:00.0' },
      pfName: { string: 'ens1f0' },
      vfIndex: { int: 1 },
      vendor: { string: '8086' },
      device: { string: '154c' },
      driver: { string: 'iavf' },
      iommuGroup: { string: '41' },
      mac: { string: '02:00:00:00:00:0a' },
      mtu: { int: 9000 },
      simulated: { bool: false },
    });
  });

  it('leaves out what is unknown, so that two unknowns never match', () => {
    const { pciAddress, pfAddress, vendor, device, name } = vf;
    const known = deviceAttributes({ name, pciAddress, pfAddress, vfIndex: 0, vendor, device, simulated: true });
    expect(Object.keys(known).sort()).toEqual(
      [
        'resource.kubernetes.io/pciBusID',
        'pciAddress',
        'pfPciAddress',
        'vfIndex',
        'vendor',
        'device',
        'simulated',
      ].sort(),
    );
    expect(known.vfIndex).toEqual({ int: 0 });
  });

  it('keeps to the limits of the API whatever the kernel says', () =>
    fc.assert(
      fc.property(fc.string({ maxLength: 80 }), fc.string({ maxLength: 80 }), (driver, pfName) => {
        const attributes = deviceAttributes({ ...vf, driver, pfName });
        expect(Object.keys(attributes).length).toBeLessThanOrEqual(maxAttributes);
        for (const [name, value] of Object.entries(attributes)) {
          expect(name.split('/').at(-1)).toMatch(/^[A-Za-z_][A-Za-z0-9_]{0,31}$/);
          if ('string' in value) expect(Buffer.byteLength(value.string)).toBeLessThanOrEqual(64);
        }
      }),
    ));
});

describe('linkIdentity', () => {
  it('goes by the bus address, or by the alias of what has none', () => {
    expect(linkIdentity(vf)).toEqual({ pciAddress: '0000:3b:02.1' });
    expect(linkIdentity({ pciAddress: 'fe00:00:02.0', simulated: true })).toEqual({ alias: 'netdra:fe00:00:02.0' });
  });
});
