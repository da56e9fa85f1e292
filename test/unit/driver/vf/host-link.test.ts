import { describe, expect, it } from 'vitest';
import type { Attachment } from '../../../../src/driver/model/index.ts';
import { changesOf, linkOnHost } from '../../../../src/driver/vf/host-link.ts';
import type { LinkState } from '../../../../src/node/netlink/index.ts';

const place: Attachment = { podNamespace: 'default', podName: 'app', sandboxId: 's', podUid: 'u', netnsPath: '/n' };
const link: LinkState = {
  name: 'ens1v0',
  hardwareAddress: '02:00:00:00:00:01',
  mtuBytes: 1500,
  up: false,
  altNames: ['enp1s0f0v0'],
  qdiscs: { root: 'fq' },
};
const before = { driver: 'iavf', vf: {}, link };
const configured: LinkState = { ...link, hardwareAddress: '02:00:00:00:00:0a', altNames: [] };

describe('changesOf', () => {
  it('returns only the properties that the claim changed after the snapshot', () => {
    const host = changesOf(configured, { before });
    expect(host).toEqual({ hardwareAddress: '02:00:00:00:00:0a', altNames: [] });
    expect(linkOnHost({ before, attachment: { ...place, host } })).toEqual(configured);
  });

  it('returns every property of an interface that the VF did not have before its claim', () => {
    const without = { before: { driver: 'vfio-pci', vf: {} } };
    const host = changesOf(configured, without);
    expect(linkOnHost({ ...without, attachment: { ...place, host } })).toEqual(configured);
  });
});

describe('linkOnHost', () => {
  it('returns the snapshot if the claim has changed nothing', () => {
    expect(linkOnHost({ before, attachment: { ...place, host: changesOf(link, { before }) } })).toEqual(link);
    expect(linkOnHost({ before })).toEqual(link);
  });

  it('returns undefined for a VF that netdra does not move', () => {
    expect(linkOnHost({ before, attachment: place })).toBeUndefined();
  });
});
