import { describe, expect, it } from 'vitest';
import { checkBonds } from '../../../../src/driver/api/bond-rules.ts';
import type { StoredDevice } from '../../../../src/driver/model/index.ts';
import type { AllocatedClaim } from '../../../../src/framework/kubeletplugin/index.ts';

const claim = { identity: { uid: 'u', namespace: 'default', name: 'c' } } as AllocatedClaim;

function member(index: number, linkType: string, bond: object, request = 'r'): StoredDevice {
  const place = { pciAddress: `0000:0${index}:00.1`, pfAddress: `0000:0${index}:00.0`, vfIndex: 0 };
  const offered = { ...place, linkType } as StoredDevice['offered'];
  return { ...place, pool: 'p', name: `dev-${index}`, request, config: { bond }, offered } as StoredDevice;
}

const check = (types: string[], bond: object) => () =>
  checkBonds(
    claim,
    types.map((type, index) => member(index, type, { name: 'bond0', ...bond })),
  );

describe('checkBonds', () => {
  it.each([
    [
      ['infiniband', 'infiniband'],
      { mode: '802.3ad' },
      'has mode 802.3ad, but dev-0 is InfiniBand, which needs active-backup',
    ],
    [
      ['infiniband', 'infiniband'],
      { failOverMac: 'none' },
      'has failOverMac none, but dev-0 is InfiniBand, which needs active',
    ],
    [
      ['ethernet', 'infiniband'],
      {},
      'has dev-0 of link type ethernet, and dev-1 of infiniband: all members must have the same type',
    ],
  ])('rejects members %j with %j, which the kernel cannot join', (types, bond, problem) => {
    expect(check(types, bond)).toThrow(expect.objectContaining({ code: 'config-invalid' }));
    expect(check(types, bond)).toThrow(`bond: bond0 ${problem}`);
  });

  it.each([
    [['infiniband', 'infiniband'], {}],
    [['infiniband', 'infiniband'], { mode: 'active-backup', failOverMac: 'active' }],
    [['ethernet', 'ethernet'], { mode: '802.3ad' }],
  ])('accepts members %j with %j', (types, bond) => {
    expect(check(types, bond)).not.toThrow();
  });

  it.each([
    ['right', ['left', 'right'], undefined],
    ['right', ['left', 'right/second'], undefined],
    ['middle', ['left', 'right'], 'has primary middle, but its members are of the requests left and right'],
    ['left', ['left', 'left'], 'has primary left, but that request has 2 of its members'],
  ])(
    'accepts the primary %s only if exactly one member of the requests %j matches it',
    (primary, requests, problem) => {
      const members = requests.map((request, index) => member(index, 'ethernet', { name: 'bond0', primary }, request));
      if (problem === undefined) expect(() => checkBonds(claim, members)).not.toThrow();
      else expect(() => checkBonds(claim, members)).toThrow(`bond: bond0 ${problem}`);
    },
  );
});
