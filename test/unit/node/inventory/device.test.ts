import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { linkIdentity } from '../../../../src/node/inventory/device.ts';
import { formatDeviceName, isPciAddress } from '../../../../src/node/sriov/pci-address.ts';

describe('formatDeviceName', () => {
  it('returns a DNS label that is unique per address', () =>
    fc.assert(
      fc.property(fc.nat(0xffff_ffff), fc.nat(0xff), fc.nat(0x1f), fc.nat(7), (domain, bus, slot, fn) => {
        const hex = (value: number, digits: number) => value.toString(16).padStart(digits, '0');
        const address = `${hex(domain, 4)}:${hex(bus, 2)}:${hex(slot, 2)}.${fn}`;
        expect(isPciAddress(address)).toBe(true);
        expect(formatDeviceName(address)).toMatch(/^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/);
        const [a, b, c, d] = formatDeviceName(address).split('-');
        expect(`${a}:${b}:${c}.${d}`).toBe(address);
      }),
    ));

  it.each([
    '3b:02.1',
    '000:3b:02.1',
    '000000000:3b:02.1',
    '0000:3b:02',
    '0000:3B:02.1',
    '0000:3b:02.8',
    '0000:3b:02.1\n',
    '',
  ])('rejects the address %j', (text) => expect(isPciAddress(text)).toBe(false));
});

it('linkIdentity returns the bus address of a link, or the alias if there is no bus address', () => {
  expect(linkIdentity({ pciAddress: '0000:3b:02.1', simulated: false })).toEqual({ pciAddress: '0000:3b:02.1' });
  expect(linkIdentity({ pciAddress: 'fe00:00:02.0', simulated: true })).toEqual({ alias: 'netdra:fe00:00:02.0' });
});
