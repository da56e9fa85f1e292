import { expect, it } from 'vitest';
import type { SandboxPlace } from '../../../../src/driver/model/index.ts';
import type { NetworkNamespace } from '../../../../src/driver/vf/networks.ts';
import { joinVrf } from '../../../../src/driver/vf/vrfs.ts';
import { type Link, NetlinkError, type NewRoute } from '../../../../src/node/netlink/index.ts';
import { storedDevice } from '../../../doubles/stored-claims.ts';

const place = { podUid: 'u', podNamespace: 'default', podName: 'app', sandboxId: 's', netnsPath: '/n' } as SandboxPlace;
const task = { device: storedDevice(), place };
const net1 = { index: 5, name: 'net1' } as Link;
const wanted = { name: 'red', table: 10 };
const alias = 'netdra:vrf:u/red';
const refusal = (errno: string) => new NetlinkError('netlink-refused', 'refused', { errno });

/** A pod with or without the VRF. @param fails returns the error of a request */
function podWith(vrf?: Partial<Link>, fails: (request: string, value: unknown) => Error | undefined = () => undefined) {
  const calls: unknown[] = [];
  let made = vrf && ({ index: 9, kind: 'vrf', ...vrf } as Link);
  const request = async (name: string, value: unknown) => {
    calls.push([name, value]);
    const error = fails(name, value);
    if (error !== undefined) throw error;
  };
  const connection = {
    links: async () => (made === undefined ? [] : [made]),
    link: async ({ name = '' }) => (name === made?.name ? made : undefined),
    createVrf: async ({ name, table }: { name: string; table: number }) => {
      await request('create', table);
      made = { index: 9, kind: 'vrf', name, vrfTable: table } as Link;
    },
    setLink: async (index: number, change: object) => await request(`set ${index}`, change),
    addRoute: async ({ destination }: NewRoute) => await request('route', destination),
  };
  const writeSysctls = async (name: string, settings: object) => {
    await request(`sysctls of ${name}`, Reflect.get(settings, 'net.ipv4.conf.IFNAME.forwarding'));
    return [];
  };
  const namespace = { connection, writeSysctls } as unknown as NetworkNamespace;
  const join = () => joinVrf(task, namespace, net1, { vrf: wanted });
  return { join, calls };
}

const completed = [
  ['sysctls of red', 0],
  ['set 9', { up: true }],
  ['route', '0.0.0.0/0'],
  ['route', '::/0'],
  ['set 5', { master: 9 }],
];

it('joinVrf creates the VRF for its first member, and reuses it for the next member', async () => {
  const first = podWith();
  await first.join();
  expect(first.calls).toEqual([['create', 10], ['set 9', { name: 'red', alias }], ...completed]);
  const second = podWith({ name: 'red', alias, vrfTable: 10 });
  await second.join();
  expect(second.calls).toEqual(completed);
});

it('joinVrf continues if the VRF already has its last-resort route, or the kernel has no IPv6', async () => {
  const errors = new Map<unknown, Error>([
    ['0.0.0.0/0', refusal('EEXIST')],
    ['::/0', refusal('ENOTSUP')],
  ]);
  const pod = podWith(undefined, (_, value) => errors.get(value));
  await pod.join();
  expect(pod.calls.at(-1)).toEqual(['set 5', { master: 9 }]);
});

it("joinVrf does not change a foreign link that has the VRF's name, and reports it", async () => {
  const pod = podWith(undefined, (_, value) => ('alias' in Object(value) ? refusal('EEXIST') : undefined));
  await expect(pod.join()).rejects.toMatchObject({
    code: 'vrf-refused',
    message:
      'device dev-1 (0000:3b:02.1) cannot join VRF red in pod default/app: the pod has a link of that name that netdra has not made',
  });
});

it('joinVrf reports a VRF to which a process in the pod has given another table', async () => {
  await expect(podWith({ name: 'red', alias, vrfTable: 11 }).join()).rejects.toMatchObject({
    code: 'vrf-refused',
    message: expect.stringMatching(/: it has table 11, not 10$/),
  });
});
