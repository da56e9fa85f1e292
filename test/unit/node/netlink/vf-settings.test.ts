import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { encodeAttributes } from '../../../../src/node/netlink/attributes.ts';
import { decodeVfInfos, encodeVfChange, type VfChange } from '../../../../src/node/netlink/vf-settings.ts';

const linkHeader = Buffer.alloc(16);

/** The kernel answers with the same attributes in the same nesting, VLANs apart. */
function roundTrip(vfIndex: number, change: VfChange) {
  return encodeVfChange(vfIndex, change).map(({ attributes }) =>
    decodeVfInfos(Buffer.concat([linkHeader, ...encodeAttributes(attributes)])),
  );
}

describe('encodeVfChange', () => {
  it('encodes each property separately, so that an unsupported property does not affect other properties', () => {
    const properties = encodeVfChange(3, { trust: true, spoofCheck: false, hardwareAddress: '02:00:00:00:00:01' });
    expect(properties.map(({ property }) => property)).toEqual(['hardwareAddress', 'spoofCheck', 'trust']);
    expect(encodeVfChange(3, {})).toEqual([]);
  });

  it('is the inverse of decodeVfInfos for the settings of a VF', () => {
    const change = fc.record(
      {
        hardwareAddress: fc.constant('02:aa:bb:cc:dd:ee'),
        spoofCheck: fc.boolean(),
        trust: fc.boolean(),
        linkState: fc.constantFrom('auto' as const, 'enable' as const, 'disable' as const),
      },
      { requiredKeys: [] },
    );
    fc.assert(
      fc.property(fc.nat({ max: 127 }), change, (vfIndex, wanted) => {
        const read = Object.assign({}, ...roundTrip(vfIndex, wanted).flat());
        expect(read).toEqual(Object.keys(wanted).length === 0 ? {} : { vfIndex, ...wanted });
      }),
    );
  });

  it('encodes both rates in one attribute', () => {
    expect(roundTrip(1, { rate: { minMbps: 10, maxMbps: 200 } })).toEqual([
      [{ vfIndex: 1, minTxRateMbps: 10, maxTxRateMbps: 200 }],
    ]);
  });

  it('encodes a VLAN as the list with its protocol, in network order', () => {
    const [vlan] = encodeVfChange(2, { vlan: { id: 100, priority: 5, protocol: '802.1ad' } });
    if (vlan === undefined) throw new Error('nothing encoded');
    // VFINFO_LIST > VF_INFO > VLAN_LIST > VLAN_INFO { u32 vf, vlan, qos; be16 protocol }
    expect(Buffer.concat(encodeAttributes(vlan.attributes)).toString('hex')).toBe(
      ['20001680', '1c000180', '18000c80', '14000100', '02000000', '64000000', '05000000', '88a80000'].join(''),
    );
  });
});
