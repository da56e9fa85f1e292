import { expect, it } from 'vitest';
import { cniInterfaceName } from '../../../../src/driver/vf/cni-attacher.ts';
import { storedAttachment, storedDevice } from '../../../doubles/stored-claims.ts';

const name = 'ens1f0-vf-0000-3b-02-1';
const attachment = storedAttachment({ interfaceName: 'net3' });

it.each([
  ['of the bond, whose members get its addresses once', { interfaceName: 'net1', bond: { name: 'bond0' } }, 'bond0'],
  ['that the claim requests', { interfaceName: 'net1' }, 'net1'],
  ['that was chosen at the attachment', {}, 'net3'],
] as const)('plugins receive the interface name %s', (_, config, expected) => {
  expect(cniInterfaceName(storedDevice({ name, config, attachment }))).toBe(expected);
});

it('CNI plugins get the end of the device name as interface name for a device without interface', () => {
  expect(cniInterfaceName(storedDevice({ name }))).toBe('vf-0000-3b-02-1');
});
