import { describe, expect, it } from 'vitest';
import { encodeAttributes, encodeString } from '../../../../src/node/netlink/attributes.ts';
import { decodeValues, encodeValues } from '../../../../src/node/netlink/ethtool.ts';
import { connectEthtool } from '../../../doubles/netlink-kernel.ts';

/** With two of the bits. */
const bits = (type: number, ...values: { name: string; value: boolean }[]) => ({
  type,
  value: [
    {
      type: 3,
      value: values.map(({ name, value }) => ({
        type: 1,
        value: [{ type: 2, value: encodeString(name) }, ...(value ? [{ type: 3, value: Buffer.alloc(0) }] : [])],
      })),
    },
  ],
});

describe('decodeValues', () => {
  it('returns the requested values of the features that can be changed, and omits other features', () => {
    const changeable = bits(2, { name: 'rx-gro', value: true }, { name: 'tx-lockless', value: false });
    // Without a mask only those that are set are listed, and none of them has a value.
    const listed = bits(3, { name: 'tx-lockless', value: false }, { name: 'rx-gro', value: false });
    const list = (value: typeof listed) => ({ ...value, value: [{ type: 1, value: Buffer.alloc(0) }, ...value.value] });
    const message = (wanted: typeof listed) => Buffer.concat(encodeAttributes([changeable, list(wanted)]));
    expect(decodeValues('features', message(listed))).toEqual({ 'rx-gro': true });
    expect(decodeValues('features', message(bits(3)))).toEqual({ 'rx-gro': false });
  });

  it('reads all features that are in effect', () => {
    const known = bits(2, { name: 'rx-gro', value: true }, { name: 'highdma', value: false });
    const [wanted, active] = [3, 4].map((type) => bits(type, { name: type === 3 ? 'rx-gro' : 'highdma', value: true }));
    const message = Buffer.concat(encodeAttributes([known, wanted!, active!]));
    expect(decodeValues('features', message, true)).toEqual({ 'rx-gro': false, highdma: true });
    expect(decodeValues('features', message)).toEqual({ 'rx-gro': true });
  });

  it('reads private flags as switches', () => {
    const message = encodeAttributes([bits(2, { name: 'legacy-rx', value: true }, { name: 'other', value: false })]);
    expect(decodeValues('privateFlags', Buffer.concat(message))).toEqual({ 'legacy-rx': true, other: false });
  });
});

// ETHTOOL_TCP_DATA_SPLIT_UNKNOWN, _DISABLED and _ENABLED; the kernel takes one byte.
it.each([0, 1, 2])('encodeValues encodes TCP data split as one byte: %i', (tcpDataSplit) => {
  const [answer] = encodeValues('rings', { tcpDataSplit });
  expect(answer).toEqual({ type: 11, value: Buffer.of(tcpDataSplit) });
  expect(decodeValues('rings', Buffer.concat(encodeAttributes([answer!])))).toEqual({ tcpDataSplit });
});

it('encodeValues encodes changed bits, with a value if they are set', () => {
  const values = { 'rx-gro': true, 'tx-gso-partial': false };
  const answer = Buffer.concat(encodeAttributes(encodeValues('privateFlags', values)));
  expect(decodeValues('privateFlags', answer)).toEqual(values);
});

it('EthtoolConnection reports an unreadable kernel response', async () => {
  using connection = connectEthtool(() => Buffer.alloc(16));
  const answer = connection.read(7);
  await expect(answer).rejects.toMatchObject({ code: 'netlink-malformed', interfaceName: '#7' });
  await expect(connection.read(0)).rejects.toMatchObject({ code: 'netlink-invalid' });
});
