import { describe, expect, it } from 'vitest';
import { encodeString } from '../../../../src/node/netlink/attributes.ts';
import { decodeLink, encodeLink, LinkAttribute } from '../../../../src/node/netlink/link.ts';
import { isRepresentor } from '../../../../src/node/netlink/representor.ts';

describe('isRepresentor', () => {
  it.each([
    // Of devlink, of a DPU and of AMD and Marvell.
    'pf0vf0',
    'pf1vf127',
    'c1pf0vf1',
    'pf0sf88',
    'c1pf0sf88',
    'pf0',
    'c1pf0',
    'pf0hpf',
    'p0pf0vf3',
    'p0if1pf0vf2',
    'Rpf1vf0',
    'p0hpf',
    'vf0',
  ])('recognizes %s', (portName) => expect(isRepresentor({ portName })).toBe(true));

  it.each(['p0', 'p17', 'p0s1', 'p1s3', ''])('returns false for the port name %j of an uplink', (portName) =>
    expect(isRepresentor({ portName })).toBe(false),
  );

  it('uses the port name from netlink, and returns false without a port name', () => {
    const message = (attributes: Parameters<typeof encodeLink>[1]) => Buffer.concat(encodeLink(3, attributes));
    const named = decodeLink(message([{ type: LinkAttribute.physPortName, value: encodeString('pf0vf3') }]));
    expect(named.portName).toBe('pf0vf3');
    expect(isRepresentor(named)).toBe(true);
    expect(isRepresentor(decodeLink(message([])))).toBe(false);
  });
});
