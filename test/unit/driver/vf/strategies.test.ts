import { expect, it } from 'vitest';
import { createStrategies } from '../../../../src/driver/vf/strategies.ts';
import type { AttachTask } from '../../../../src/driver/vf/strategy.ts';
import { NetlinkError } from '../../../../src/node/netlink/index.ts';
import { storedDevice } from '../../../doubles/stored-claims.ts';

it('a bond is rejected if another interface in the pod has its name, which the error says', async () => {
  const bond = { index: 9, name: 'netdra-1a2b3c4d', kind: 'bond', mtuBytes: 1500 };
  const taken = new NetlinkError('netlink-refused', 'cannot change link #9', { errno: 'EEXIST' });
  const connection = {
    links: async () => [],
    link: async () => bond,
    setLink: async () => Promise.reject(taken),
  };
  const config = { bond: { name: 'eth0' } };
  const device = storedDevice({ config });
  const task = {
    device,
    created: { kind: 'bond', alias: 'netdra:bond:c/eth0' },
    signal: new AbortController().signal,
    place: { podUid: 'u', podNamespace: 'default', podName: 'app', sandboxId: 's', netnsPath: '/n' },
    pod: { namespace: { connection } },
  };
  const { netlink } = createStrategies({
    links: { snapshot: async () => ({}), attach: async () => ({ index: 5, name: 'net1' }) },
    cni: { addresses: async () => ({ addresses: [], routes: [] }) },
  } as unknown as Parameters<typeof createStrategies>[0]);
  await expect(netlink.attach(task as unknown as AttachTask)).rejects.toMatchObject({
    code: 'interface-name-taken',
    message: expect.stringMatching(/^device dev-1 \(0000:3b:02\.1\) cannot have the name eth0 in pod default\/app/),
  });
});

it('a VF in user space is configured again for each sandbox, in case its PF has been reset', async () => {
  const calls: string[] = [];
  const { 'user-space': userSpace } = createStrategies({
    vfs: { adminInfo: async () => undefined },
    cni: { addresses: async () => ({ addresses: [], routes: [] }) },
  } as unknown as Parameters<typeof createStrategies>[0]);
  const place = { podUid: 'u', sandboxId: 's2', netnsPath: '/n2' };
  const attachTo = async (attachment?: object) => {
    calls.length = 0;
    const device = { ...storedDevice(), attachment };
    const steps = { reconfigure: async () => void calls.push('reconfigure'), record: () => void calls.push('record') };
    await userSpace.attach({ device, place, ...steps } as unknown as AttachTask);
    return calls;
  };
  expect(await attachTo({ ...place, sandboxId: 's1', netnsPath: '/n1' })).toEqual(['reconfigure', 'record']);
  // Its containers may be running.
  expect(await attachTo(place)).toEqual(['record']);
});
