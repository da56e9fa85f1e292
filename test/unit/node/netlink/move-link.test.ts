import { describe, expect, it } from 'vitest';
import {
  type Link,
  type LinkChange,
  type LinkSelector,
  moveLink,
  NetlinkError,
} from '../../../../src/node/netlink/index.ts';

/** A namespace as far as moving sees it. */
class Namespace {
  readonly links: Link[] = [];

  constructor(...names: string[]) {
    for (const name of names) this.add(name);
  }

  add(name: string, more: Partial<Link> = {}): Link {
    const state = { mtuBytes: 1500, up: false, carrier: false, altNames: [] };
    const link = { index: this.links.length + 1, name, ...state, ...more };
    this.links.push(link);
    return link;
  }

  readonly link = async (by: LinkSelector) =>
    this.links.find(({ index, name }) => ('index' in by ? index === by.index : name === by.name));
}

const netns = { fd: 3, path: '/run/netns/host' };
const nameTaken = () => new NetlinkError('netlink-refused', 'the name is taken', { errno: 'EEXIST' });
const vf = { parentDevice: '0000:3b:02.0', hardwareAddress: '02:00:00:00:00:01' };

/** A pod with the VF, and a host, between which the kernel moves links on request. */
function open({ onMove }: { onMove: (host: Namespace, change: LinkChange, attempt: number) => void }) {
  const [host, pod] = [new Namespace('lo', 'pf0'), new Namespace('lo')];
  const link = pod.add('net1', vf);
  let attempt = 0;
  const from = {
    link: pod.link,
    removeAltNames: async () => undefined,
    setLink: async (_index: number, change: LinkChange) => {
      onMove(host, change, ++attempt);
      pod.links.pop();
      host.add(change.name ?? '', vf);
    },
  };
  const move = (acceptOtherName: boolean) =>
    moveLink(from, link, { netns, connection: host }, { name: 'ens1f0v0' }, { acceptOtherName });
  return { host, pod, move };
}

describe('moveLink, if a name is taken during the move', () => {
  it('finds the link under its old name in the target if the kernel moved it despite the error', async () => {
    const { pod, move } = open({
      onMove: (host) => {
        pod.links.pop();
        host.add('ens1f0v0');
        host.add('net1', vf);
        throw nameTaken();
      },
    });
    expect(await move(true)).toMatchObject({ name: 'net1', ...vf });
  });

  it('retries if the link is still in its old namespace', async () => {
    const { move } = open({
      onMove: (host, { name }, attempt) => {
        if (attempt > 3) return;
        host.add(name ?? '');
        throw nameTaken();
      },
    });
    expect(await move(true)).toMatchObject({ name: 'netdra2-2', ...vf });
  });

  it('gives up after some attempts, or at once if no other name is allowed', async () => {
    let attempts = 0;
    const refuse = () => {
      attempts++;
      throw nameTaken();
    };
    await expect(open({ onMove: refuse }).move(true)).rejects.toMatchObject({ errno: 'EEXIST' });
    expect(attempts).toBe(20);
    await expect(open({ onMove: refuse }).move(false)).rejects.toMatchObject({ errno: 'EEXIST' });
    expect(attempts).toBe(21);
  });

  it('rethrows other errors', async () => {
    const refuse = () => {
      throw new NetlinkError('netlink-refused', 'no', { errno: 'EPERM' });
    };
    await expect(open({ onMove: refuse }).move(true)).rejects.toMatchObject({ errno: 'EPERM' });
  });
});

describe("moveLink, if another link in the pod now has the VF's index", () => {
  it.each<[string, Partial<Link>]>([
    ['of another device', { ...vf, parentDevice: '0000:3b:02.1' }],
    ['of no device, with the MAC address of the VF', { hardwareAddress: vf.hardwareAddress, kind: 'dummy' }],
  ])('does not move the other link: a link %s', async (_what, other) => {
    const { pod, host, move } = open({ onMove: () => undefined });
    const index = pod.links.pop()!.index;
    pod.add('net1', { index, ...other });
    await expect(move(true)).rejects.toMatchObject({ errno: 'ENODEV', interfaceName: `#${index}` });
    expect(host.links.map(({ name }) => name)).toEqual(['lo', 'pf0']);
  });

  it('reports a link that has taken the name in the target namespace', async () => {
    const { host, move } = open({
      onMove: (_host, { name = '' }) => host.add(name, { parentDevice: '0000:3b:02.7' }),
    });
    await expect(move(true)).rejects.toMatchObject({ errno: 'ENODEV', interfaceName: 'ens1f0v0' });
  });
});
