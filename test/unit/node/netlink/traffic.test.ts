import { putU32 } from 'netlink';
import { describe, expect, it } from 'vitest';
import { type Attribute, encodeAttributes } from '../../../../src/node/netlink/attributes.ts';
import { decodeLinkTraffic, decodeVfTraffic } from '../../../../src/node/netlink/traffic.ts';

const message = (attributes: Attribute[]) => Buffer.concat([Buffer.alloc(16), ...encodeAttributes(attributes)]);
const counter = (value: number) => {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
};

describe('decodeVfTraffic', () => {
  /** `IFLA_VF_INFO` with the MAC, and with counters that are the type of their attribute plus `base`. */
  const vf = (index: number, stats: Attribute[]): Attribute => ({
    type: 1,
    value: [{ type: 1, value: Buffer.concat([putU32(index), Buffer.alloc(32)]) }, ...stats],
  });
  const stats = (base: number, types = [0, 1, 2, 3, 4, 5, 7, 8]): Attribute => ({
    type: 8,
    value: types.map((type) => ({ type, value: counter(base + type) })),
  });

  it('reads the counters of each VF that the PF reports, including values beyond 32 bits', () => {
    const base = 2 ** 40;
    const list = { type: 22, value: [vf(0, [stats(100)]), vf(5, [stats(base)])] };
    expect(decodeVfTraffic(message([list]))).toEqual([
      { vfIndex: 0, rxPackets: 100, txPackets: 101, rxBytes: 102, txBytes: 103, rxDropped: 107, txDropped: 108 },
      {
        vfIndex: 5,
        rxPackets: base,
        txPackets: base + 1,
        rxBytes: base + 2,
        txBytes: base + 3,
        rxDropped: base + 7,
        txDropped: base + 8,
      },
    ]);
  });

  it('skips VFs with missing counters', () => {
    const list = { type: 22, value: [vf(0, []), vf(1, [stats(0, [0, 1, 2, 3])]), vf(2, [stats(1)])] };
    expect(decodeVfTraffic(message([list])).map(({ vfIndex }) => vfIndex)).toEqual([2]);
    expect(decodeVfTraffic(message([]))).toEqual([]);
  });
});

it("decodeLinkTraffic reads the counters in the kernel's order, and returns no counters for a short message", () => {
  const stats = { type: 23, value: Buffer.concat(Array.from({ length: 25 }, (_, place) => counter(10 + place))) };
  expect(decodeLinkTraffic(message([stats]))).toEqual({
    rxPackets: 10,
    txPackets: 11,
    rxBytes: 12,
    txBytes: 13,
    rxErrors: 14,
    txErrors: 15,
    rxDropped: 16,
    txDropped: 17,
  });
  expect(decodeLinkTraffic(message([{ type: 23, value: Buffer.alloc(40) }]))).toBeUndefined();
  expect(decodeLinkTraffic(message([]))).toBeUndefined();
});
