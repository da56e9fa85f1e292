import { beforeEach, describe, expect, it } from 'vitest';
import type { StoredDevice } from '../../../../src/driver/model/index.ts';
import { PodLinks } from '../../../../src/driver/vf/index.ts';
import type { NetworkNamespace } from '../../../../src/driver/vf/networks.ts';
import type { Link } from '../../../../src/node/netlink/index.ts';
import { storedDevice } from '../../../doubles/stored-claims.ts';

const place = { sandboxId: 's1', podUid: 'pod', netnsPath: '/netns/s1' };
const host = { name: 'ens1v0', hardwareAddress: '02:00:00:00:00:01', mtuBytes: 1500 };
const vf = storedDevice({
  attachment: { ...place, host } as unknown as NonNullable<StoredDevice['attachment']>,
});
const link = (name: string, more: Partial<Link> = {}) => ({ index: 1, name, ...more }) as Link;

describe('PodLinks.findAttached', () => {
  let links: Link[];
  let lists: number;
  let pod: PodLinks;

  beforeEach(() => {
    lists = 0;
    const linkTable = async () => {
      lists++;
      const listed = [...links];
      return { all: () => listed, candidates: () => listed };
    };
    const namespace = { connection: { linkTable } } as unknown as NetworkNamespace;
    pod = new PodLinks(namespace, (pciAddress) => ({ pciAddress }));
  });

  const eth0 = link('eth0', { kind: 'veth' });
  const lo = link('lo', { hardwareAddress: '00:00:00:00:00:00' });
  const net1 = link('net1', { parentDevice: vf.pciAddress });

  it('finds a VF in the current list, whatever its name', async () => {
    links = [lo, eth0, net1];
    await pod.find(vf);
    expect([await pod.findAttached(vf), lists]).toEqual([net1, 1]);
  });

  it('lists the links again before it reports that a VF left the pod', async () => {
    links = [lo, eth0];
    await pod.find(vf);
    links = [lo, eth0, net1];
    expect([await pod.findAttached(vf), lists]).toEqual([net1, 2]);
    links = [lo, eth0];
    pod.changed();
    expect(await pod.findAttached(vf)).toBeUndefined();
  });

  it('does not report that a VF left while an unidentified link may be the VF (kernels before 5.14)', async () => {
    links = [lo, eth0, link('net1', { hardwareAddress: host.hardwareAddress })];
    expect(await pod.findAttached(vf)).toMatchObject({ name: 'net1' });
    pod.changed();
    links = [lo, eth0, link('net1', { hardwareAddress: '02:00:00:00:00:99' })];
    await expect(pod.findAttached(vf)).rejects.toMatchObject({
      code: 'vf-unknown',
      device: 'dev-1',
      retriable: true,
      message: expect.stringMatching(/device dev-1 \(0000:3b:02\.1\) is still in its pod: .* has the links net1$/),
    });
  });
});

describe('PodLinks.find in a pod with more links than are read', () => {
  const cut = { all: () => [], candidates: () => [], isCut: () => true };
  const podWith = (byName: Record<string, Link>) => {
    const link = async ({ name }: { name: string }) => byName[name];
    const connection = { linkTable: async () => cut, link };
    return new PodLinks({ connection } as unknown as NetworkNamespace, (pciAddress) => ({ pciAddress }));
  };

  it('finds the VF by its name if the kernel confirms that the link is the VF', async () => {
    const own = link(host.name, { parentDevice: vf.pciAddress });
    expect(await podWith({ [host.name]: own }).find(vf)).toBe(own);
  });

  it('reports the VF as unknown, not as lost, if another link has its name', async () => {
    const pod = podWith({ [host.name]: link(host.name, { hardwareAddress: host.hardwareAddress }) });
    const expected = { code: 'vf-unknown', retriable: true, message: expect.stringContaining('4096 or more links') };
    await expect(pod.find(vf)).rejects.toMatchObject(expected);
    await expect(pod.findAttached(vf)).rejects.toMatchObject(expected);
  });
});

it('PodLinks finds a VF that joined its bond after the links were listed', async () => {
  const bond = link('bond0', { index: 9, kind: 'bond' });
  let member = link('net1', { parentDevice: vf.pciAddress });
  const connection = {
    linkTable: async () => {
      const listed = [member];
      return { all: () => listed, candidates: () => listed };
    },
    link: async () => bond,
    addresses: async () => [],
  };
  const pod = new PodLinks({ connection } as unknown as NetworkNamespace, (pciAddress) => ({ pciAddress }));
  const before = (await pod.findAttached(vf)) as Link;
  member = { ...member, master: bond.index };
  expect(await pod.stateOfMember(vf, before)).toMatchObject({
    interfaceName: 'bond0',
    member: { interfaceName: 'net1' },
  });
});
