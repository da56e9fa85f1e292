import { expect, it } from 'vitest';
import type { Networks } from '../../../../src/driver/sandbox/index.ts';
import type { StoredDevice } from '../../../../src/driver/state/index.ts';
import { Attachments, type AttachmentsOptions } from '../../../../src/driver/vf/attachments.ts';
import { type LinkState, NetlinkError } from '../../../../src/node/netlink/index.ts';
import { ManualClock } from '../../../doubles/manual-clock.ts';

it('an attachment stays stored until the interface is restored, so that detaching is repeated', async () => {
  const host: LinkState = { name: 'ens1v0', hardwareAddress: '02:00:00:00:00:01', mtuBytes: 1500, up: false };
  const device: StoredDevice = {
    ...{ pciAddress: '0000:3b:02.1', pool: 'n', name: 'dev-1', request: 'vf', config: {} },
    attachment: { sandboxId: 's', podUid: 'u', netnsPath: '/n', host },
  };
  const stored: unknown[] = [];
  let refusal: Error | undefined = new NetlinkError('netlink-refused', 'cannot read links', { errno: 'ENOBUFS' });
  const links = async () => {
    if (refusal !== undefined) throw refusal;
    return [];
  };
  const attachments = new Attachments({
    networks: { host: { connection: { links, link: links } }, open: () => undefined } as unknown as Networks,
    vfs: { linkKey: () => ({ alias: 'vf' }), recreate: async () => undefined },
    cni: { remove: async () => undefined },
    store: { setAttachments: (...change: unknown[]) => void stored.push(change) },
    clock: new ManualClock(),
  } as unknown as AttachmentsOptions);
  await expect(attachments.detach('claim', { ...device })).rejects.toBe(refusal);
  expect(stored).toEqual([]);
  refusal = undefined;
  await attachments.detach('claim', { ...device });
  expect(stored).toEqual([['claim', new Map([[device.pciAddress, undefined]])]]);
});
