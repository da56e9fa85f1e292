import { expect, it } from 'vitest';
import type { Attachment, StoredDevice } from '../../../../src/driver/model/index.ts';
import { Attachments, type AttachmentsOptions } from '../../../../src/driver/vf/attachments.ts';
import type { NetworkNamespace, Networks } from '../../../../src/driver/vf/networks.ts';
import { formatDeviceKey } from '../../../../src/framework/metadata/index.ts';
import { type LinkState, NetlinkError } from '../../../../src/node/netlink/index.ts';
import { ManualClock } from '../../../doubles/manual-clock.ts';
import { storedDevice } from '../../../doubles/stored-claims.ts';

it('an attachment stays in the store until the interface is restored, so that detaching is retried', async () => {
  const host: LinkState = { name: 'ens1v0', hardwareAddress: '02:00:00:00:00:01', mtuBytes: 1500, up: false };
  const device = storedDevice({
    attachment: { podNamespace: 'default', podName: 'app', sandboxId: 's', podUid: 'u', netnsPath: '/n', host },
  });
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
  expect(stored).toEqual([['claim', new Map([[formatDeviceKey(device), undefined]])]]);
});

it.each([
  ['the plugins of its network', { attach: 'cni' }],
  ['its IPAM plugin', { ipam: { type: 'host-local' } }],
] as const)(
  'a VF stays in its pod until DEL of %s has ended, since DEL can need the interface',
  async (_what, config) => {
    const calls: string[] = [];
    const attachments = new Attachments({
      networks: { open: () => void calls.push('VF leaves') } as unknown as Networks,
      vfs: { linkKey: () => ({ alias: 'vf' }), recreate: async () => undefined },
      cni: {
        remove: async () => {
          calls.push('DEL begins');
          await Promise.resolve();
          calls.push('DEL ends');
        },
      },
      store: { setAttachments: () => void calls.push('stored') },
      clock: new ManualClock(),
    } as unknown as AttachmentsOptions);
    const attachment = { podUid: 'u', podNamespace: 'default', podName: 'app', sandboxId: 's', netnsPath: '/n' };
    await attachments.detach('c', storedDevice({ config, attachment }));
    expect(calls).toEqual(['DEL begins', 'DEL ends', 'VF leaves', 'stored']);
  },
);

it.each<[string, Partial<StoredDevice>]>([
  ['that another component attaches', { config: { attach: 'observe' } }],
  ['in user space', { access: { driver: 'vfio-pci', nodes: [], vfio: { device: '/dev/vfio/1', iommuGroup: '1' } } }],
])('detaching does not move a VF %s', async (_what, device) => {
  const calls: string[] = [];
  const attachments = new Attachments({
    networks: { open: () => void calls.push('VF leaves') } as unknown as Networks,
    vfs: { linkKey: () => ({ alias: 'vf' }), recreate: async () => void calls.push('recreated') },
    cni: { remove: async () => undefined },
    store: { setAttachments: () => void calls.push('stored') },
    clock: new ManualClock(),
  } as unknown as AttachmentsOptions);
  const attachment = { podUid: 'u', podNamespace: 'default', podName: 'app', sandboxId: 's', netnsPath: '/n' };
  await attachments.detach('c', storedDevice({ ...device, attachment }));
  expect(calls).toEqual(['stored']);
});

it('CNI plugins get an interface name that no other VF of the pod has or will have', async () => {
  const stored: (Attachment | undefined)[] = [];
  const link = { index: 4, name: 'ens1v1', alias: 'vf', altNames: [], mtuBytes: 1500, up: false };
  const host = {
    link: async () => link,
    links: async () => [link],
    qdisc: async () => undefined,
    addresses: async () => [],
  };
  const place = { podUid: 'u', podNamespace: 'default', podName: 'app', sandboxId: 's', netnsPath: '/n' };
  // Its plugins have failed, so there is no such interface yet, and they are called again with this name.
  const attachment = { ...place, interfaceName: 'net1' };
  const other = storedDevice({ pciAddress: '0000:3b:02.0', name: 'dev-0', config: { attach: 'cni' }, attachment });
  const device = storedDevice({ config: { attach: 'cni' } });
  const failed = new Error('the plugin has failed');
  const attachments = new Attachments({
    networks: { host: { connection: host } } as unknown as Networks,
    vfs: { linkKey: () => ({ alias: 'vf' }), ensureLink: async () => undefined, isUnbound: async () => false },
    cni: { add: async () => Promise.reject(failed) },
    store: {
      claimsOfPod: () => [{ devices: [other, device] }],
      setAttachments: (_: string, changes: Map<string, Attachment>) =>
        void stored.push(changes.get(formatDeviceKey(device))),
    },
    clock: new ManualClock(),
  } as unknown as AttachmentsOptions);
  const connection = { linkTable: async () => ({ candidates: () => [] }), link: async () => undefined };
  const namespace = { connection } as unknown as NetworkNamespace;
  const attached = attachments.attach(
    'claim',
    device,
    place,
    attachments.podLinks(namespace),
    AbortSignal.timeout(5_000),
  );
  await expect(attached).rejects.toBe(failed);
  expect(stored).toMatchObject([{ sandboxId: 's', interfaceName: 'net2' }]);
});

it('attaching a VF that is still in the sandbox of another pod does not move it', async () => {
  const link = { index: 4, name: 'net1', alias: 'vf', altNames: [], mtuBytes: 1500, up: true };
  const calls: string[] = [];
  const namespaceWith = (links: object[]) => {
    const connection = {
      linkTable: async () => ({ candidates: () => links, all: () => links }),
      link: async () => undefined,
      addresses: async () => [],
    };
    return { connection, [Symbol.dispose]: () => undefined } as unknown as NetworkNamespace;
  };
  const vfs = { linkKey: () => ({ alias: 'vf' }), adminInfo: async () => undefined, rdmaDevice: async () => undefined };
  const attachments = new Attachments({
    networks: { host: {}, open: () => namespaceWith([link]) } as unknown as Networks,
    vfs,
    cni: { remove: async () => void calls.push('DEL'), add: async () => void calls.push('ADD') },
    store: { claimsOfPod: () => [], setAttachments: () => void calls.push('store') },
    clock: new ManualClock(),
  } as unknown as AttachmentsOptions);
  const place = { podUid: 'u2', podNamespace: 'default', podName: 'next', sandboxId: 's2', netnsPath: '/n2' };
  const attachment = { ...place, podUid: 'u1', podName: 'app', sandboxId: 's1', netnsPath: '/n1' };
  const device = storedDevice({ config: { attach: 'cni' }, attachment });
  const pod = attachments.podLinks(namespaceWith([]));
  const { signal } = new AbortController();
  await expect(attachments.attach('claim', device, place, pod, signal)).rejects.toMatchObject({
    code: 'vf-busy',
  });
  expect(calls).toEqual([]);
});

it('a VF that left its sandbox keeps, while it is attached there again, that its claim was served', async () => {
  const stored: (Attachment | undefined)[] = [];
  const attachments = new Attachments({
    networks: { host: { connection: { link: async () => undefined, links: async () => [] } } } as unknown as Networks,
    vfs: { linkKey: () => ({ alias: 'vf' }), ensureLink: async () => Promise.reject(new Error('no link')) },
    store: {
      claimsOfPod: () => [],
      setAttachments: (_: string, changes: Map<string, Attachment>) => void stored.push(...changes.values()),
    },
    clock: new ManualClock(),
  } as unknown as AttachmentsOptions);
  const place = { podUid: 'u', podNamespace: 'default', podName: 'app', sandboxId: 's', netnsPath: '/n' };
  const device = storedDevice({ config: { attach: 'observe' }, attachment: { ...place, isConfigured: true } });
  for (let pass = 0; pass < 2; pass++) attachments.left('claim', device, pass === 0);
  expect(stored).toEqual([{ ...place, wasServed: true }]);
  const connection = { linkTable: async () => ({ candidates: () => [] }), link: async () => undefined };
  const pod = attachments.podLinks({ connection } as unknown as NetworkNamespace);
  const { signal } = new AbortController();
  await attachments.attach('claim', device, place, pod, signal).catch(() => undefined);
  expect(stored.at(-1)).toMatchObject({ sandboxId: 's', wasServed: true });
});
