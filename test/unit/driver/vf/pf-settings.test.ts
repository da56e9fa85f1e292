import { describe, expect, it } from 'vitest';
import type { StoredDevice } from '../../../../src/driver/model/index.ts';
import { pfSettingsOf } from '../../../../src/driver/vf/pf-settings.ts';
import { NetlinkError, type VfInfo } from '../../../../src/node/netlink/index.ts';
import { UnknownVfStateError } from '../../../../src/node/sriov/index.ts';
import { storedDevice } from '../../../doubles/stored-claims.ts';

const device = (more: Partial<StoredDevice>): StoredDevice =>
  storedDevice({ pciAddress: '0000:3b:02.0', pfAddress: '0000:3b:00.0', vfIndex: 0, name: '0000-3b-02-0', ...more });
const answers = (answer: VfInfo | Error | undefined) => ({
  adminInfo: async () => {
    if (answer instanceof Error) throw answer;
    return answer;
  },
});
const unknown = new UnknownVfStateError('PF ens1 does not report VF 0');
const [own, none, guid] = [
  '02:00:00:00:00:01',
  '00:00:00:00:00:00',
  `00:00:10:29${':fe:80:00:00:00:00:00:00'.repeat(2)}`,
];
const link = (hardwareAddress: string) => ({ name: 'ens1v0', hardwareAddress, mtuBytes: 1500, up: true });

describe('pfSettingsOf', () => {
  it('returns the settings that the PF reports', async () => {
    const info = { vfIndex: 0, vlan: { id: 7, priority: 0 } };
    expect(await pfSettingsOf(answers(info), device({}), ['vlan'])).toBe(info);
  });

  it.each<[string, Partial<StoredDevice>, ('vlan' | 'hardwareAddress')[]]>([
    ['a VLAN of the claim', { config: { vf: { vlan: 7 } } }, ['vlan']],
    ['a VLAN of the administrator', { before: { vf: { vlan: { id: 7 } } } }, ['vlan']],
    ['a MAC of the claim', { config: { macAddress: own } }, ['vlan', 'hardwareAddress']],
    ['an administrative MAC', { before: { vf: { hardwareAddress: own } } }, ['vlan', 'hardwareAddress']],
    ['the MAC of its interface', { before: { vf: {}, link: link(own) } }, ['vlan', 'hardwareAddress']],
  ])('throws if the PF does not report a setting that the device has: %s', async (_, more, facts) => {
    await expect(pfSettingsOf(answers(unknown), device(more), facts)).rejects.toBe(unknown);
  });

  it.each<[string, Partial<StoredDevice>, ('vlan' | 'hardwareAddress')[]]>([
    ['nothing is known', {}, ['vlan', 'hardwareAddress']],
    [
      'the PF had no settings',
      { before: { vf: { hardwareAddress: none, vlan: { id: 0 } } } },
      ['vlan', 'hardwareAddress'],
    ],
    ['the claim removes the VLAN', { config: { vf: { vlan: 0 } }, before: { vf: { vlan: { id: 7 } } } }, ['vlan']],
    [
      'its MAC equals the MAC of the interface',
      { config: { macAddress: own }, before: { vf: {}, link: link(own) } },
      ['vlan'],
    ],
    ['InfiniBand', { before: { vf: {}, link: link(guid) } }, ['vlan', 'hardwareAddress']],
  ])('returns nothing for a device that needs no setting: %s', async (_, more, facts) => {
    expect(await pfSettingsOf(answers(unknown), device(more), facts)).toBeUndefined();
  });

  it.each<[string, Partial<StoredDevice>, boolean]>([
    ['a VLAN of the claim', { config: { vf: { vlan: 7 } } }, true],
    ['an administrative MAC', { before: { vf: { hardwareAddress: own } } }, true],
    ['only the MAC of its interface', { before: { vf: {}, link: link(own) } }, false],
  ])(
    'throws if the PF has lost its interface but may still have a setting of the device: %s',
    async (_, more, isMissing) => {
      const settings = pfSettingsOf(answers(undefined), device(more), ['vlan', 'hardwareAddress']);
      if (isMissing) await expect(settings).rejects.toMatchObject({ code: 'vf-state-unknown', device: '0000:3b:00.0' });
      else expect(await settings).toBeUndefined();
    },
  );

  it('rethrows the error of a closed netlink connection', async () => {
    const closed = new NetlinkError('netlink-closed', 'the connection is closed');
    await expect(pfSettingsOf(answers(closed), device({}), ['vlan'])).rejects.toBe(closed);
  });
});
