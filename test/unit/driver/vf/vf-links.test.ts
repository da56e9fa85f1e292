import { expect, it } from 'vitest';
import { linkToCreate } from '../../../../src/driver/vf/created-links.ts';
import type { Networks } from '../../../../src/driver/vf/networks.ts';
import type { AttachTask } from '../../../../src/driver/vf/strategy.ts';
import { type VfHost, VfLinks } from '../../../../src/driver/vf/vf-links.ts';
import { type Link, type LinkState, NetlinkError } from '../../../../src/node/netlink/index.ts';
import { storedDevice } from '../../../doubles/stored-claims.ts';

const refuse = async () => Promise.reject(new NetlinkError('netlink-refused', 'cannot change', { errno: 'EBUSY' }));

/** Takes the snapshot of a VF that has left its pod, with the pod's changes, for attaching it again. @returns the steps after restoring it */
async function snapshotAgain(qdisc: () => Promise<undefined>): Promise<{ before: LinkState; steps: unknown[] }> {
  const before: LinkState = { name: 'ens1v0', hardwareAddress: '02:00:00:00:00:01', mtuBytes: 1500, up: false };
  const device = storedDevice({
    attachment: { podNamespace: 'default', podName: 'app', sandboxId: 's', podUid: 'u', netnsPath: '/n', host: before },
  });
  const link = { index: 5, name: 'net1', altNames: [], parentDevice: device.pciAddress, mtuBytes: 9000, up: true };
  const connection = {
    link: async () => link as unknown as Link,
    links: async () => [link],
    setLink: refuse,
    addAltName: refuse,
    removeAltNames: refuse,
    qdisc,
    addresses: async () => [],
  };
  const vfs = {
    linkKey: (pciAddress: string) => ({ pciAddress }),
    ensureLink: async () => undefined,
    isUnbound: async () => false,
  };
  const links = new VfLinks({
    networks: { host: { connection } } as unknown as Networks,
    vfs: vfs as unknown as VfHost,
  });
  const steps: unknown[] = [];
  await links.snapshot({
    device,
    before,
    signal: new AbortController().signal,
    record: (host?: LinkState) => void steps.push(host),
    reconfigure: async () => void steps.push('reconfigured'),
  } as unknown as AttachTask);
  return { before, steps };
}

it('a VF that left its pod keeps the snapshot from before its claim, even if restoring fails', async () => {
  const { before, steps } = await snapshotAgain(async () => undefined);
  expect(steps).toEqual(['reconfigured', before]);
});

// Without a failure, the VF returned to its pod in promiscuous mode: simulation, mode liveness, seed 7003339.
it('attaching a VF again fails if the state of the VF cannot be read for a snapshot', async () => {
  const noAnswer = new NetlinkError('netlink-lost', 'no answer to qdisc', {});
  await expect(snapshotAgain(() => Promise.reject(noAnswer))).rejects.toBe(noAnswer);
});

it("an interface in the host's namespace is not touched, even if the stored sandbox has that namespace", async () => {
  const calls: string[] = [];
  const connection = new Proxy({}, { get: (_, call) => async () => void calls.push(String(call)) });
  const namespace = { connection, isHost: true, [Symbol.dispose]: () => undefined };
  const links = new VfLinks({
    networks: { host: {}, open: () => namespace } as unknown as Networks,
    vfs: { linkKey: () => ({}), recreate: async () => void calls.push('recreate') } as unknown as VfHost,
  });
  const device = storedDevice();
  await links.detach(device, { netnsPath: '/proc/1/ns/net', created: linkToCreate('bond', 'c', 'bond0') });
  expect(calls).toEqual(['recreate']);
});

it('a link that was created in a pod is deleted although the device itself stays on the host', async () => {
  const calls: unknown[] = [];
  const created = linkToCreate('macvlan', 'c', 'net1');
  let refusal: Error | undefined = new NetlinkError('netlink-refused', 'cannot delete', { errno: 'EBUSY' });
  const connection = {
    link: async () => undefined,
    links: async () => [{ index: 7, name: 'net1', kind: 'macvlan', alias: created.alias }],
    deleteLink: async (index: number) => {
      if (refusal !== undefined) throw refusal;
      calls.push(index);
    },
  };
  const namespace = { connection, isHost: false, [Symbol.dispose]: () => void calls.push('closed') };
  const open = (path: string) => (path === '/gone' ? undefined : namespace);
  const links = new VfLinks({
    networks: { host: {}, open } as unknown as Networks,
    vfs: { linkKey: () => ({}) } as unknown as VfHost,
  });
  // Nothing else says later that the link is still there.
  await expect(links.deleteCreated('/n', created)).rejects.toBe(refusal);
  refusal = undefined;
  for (const path of ['/n', '/gone']) await links.deleteCreated(path, created);
  expect(calls).toEqual(['closed', 7, 'closed']);
});

it('a VF in a lost sandbox returns to the host under its old name, even if other namespaces are unreadable', async () => {
  const refusal = new NetlinkError('netns-refused', 'cannot open', {});
  const cut = { all: () => [], candidates: () => [], isCut: () => true };
  const link = { index: 5, name: 'eth0', altNames: [], xdp: [], parentDevice: '0000:3b:02.1' };
  const names: string[] = [];
  const pod = {
    linkTable: async () => ({ all: () => [link], candidates: () => [link] }),
    link: async () => link,
    removeAltNames: async () => undefined,
    setLink: async (_: number, { name }: { name?: string }) => void (name !== undefined && names.push(name)),
  };
  const host = { netns: { path: '/host' }, connection: { link: async () => (names.length > 0 ? link : undefined) } };
  const open = (path: string) => {
    if (path === '/n/refused') throw refusal;
    const connection = path === '/n/1' ? pod : { ...pod, linkTable: async () => cut, link: async () => undefined };
    return { connection, isHost: false, [Symbol.dispose]: () => undefined };
  };
  let paths = ['/n/full', '/n/refused'];
  const links = new VfLinks({
    networks: { host, list: () => paths, open } as unknown as Networks,
    vfs: { linkKey: (pciAddress: string) => ({ pciAddress }), recreate: async () => undefined } as unknown as VfHost,
  });
  const device = storedDevice({
    config: { attach: 'observe' },
    before: { vf: {}, link: { name: 'ens1v0', mtuBytes: 1500, up: false } },
  });
  await expect(links.detachLost(device)).rejects.toMatchObject({ code: 'vf-unknown' });
  paths = [...paths, '/n/1'];
  await links.detachLost(device);
  expect(names).toEqual(['ens1v0']);
});
