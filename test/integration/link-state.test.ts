import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  EthtoolConnection,
  type Link,
  type LinkState,
  moveLink,
  RtnlConnection,
  readLinkState,
  restoreLinkState,
  scrubLink,
} from '../../src/netlink/index.ts';
import { TestNetns } from '../doubles/netns.ts';
import { attachXdp } from '../doubles/xdp.ts';

/** A host with the veth end `ens1f0v0` as VF, and a pod. */
class Setup implements Disposable {
  readonly #stack = new DisposableStack();
  readonly host = this.#stack.use(new TestNetns('host'));
  readonly pod = this.#stack.use(new TestNetns('pod'));
  readonly hostHandle = this.#stack.use(this.host.open());
  readonly podHandle = this.#stack.use(this.pod.open());
  readonly hostConnection = this.#stack.use(RtnlConnection.open(this.hostHandle));
  readonly podConnection = this.#stack.use(RtnlConnection.open(this.podHandle));
  readonly hostEthtool = this.#stack.use(EthtoolConnection.open(this.hostHandle));
  readonly podEthtool = this.#stack.use(EthtoolConnection.open(this.podHandle));

  constructor() {
    // Several queues, so that their number can be changed.
    const [vf, peer] = [queues('ens1f0v0'), queues('peer0')];
    this.host.exec('ip', 'link', 'add', ...vf, 'address', '02:00:00:00:00:01', 'type', 'veth', 'peer', ...peer);
  }

  async vf(): Promise<Link> {
    const link = await this.hostConnection.link({ name: 'ens1f0v0' });
    if (link === undefined) throw new Error('ens1f0v0 is not on the host');
    return link;
  }

  async toPod(name = 'net1'): Promise<{ before: LinkState; inPod: Link }> {
    const { index } = await this.vf();
    const before = await readLinkState(this.hostConnection, index, this.hostEthtool);
    const target = { netns: this.podHandle, connection: this.podConnection };
    return { before, inPod: await moveLink(this.hostConnection, index, target, { name, up: true }) };
  }

  async back(index: number, name = 'ens1f0v0'): Promise<Link> {
    const target = { netns: this.hostHandle, connection: this.hostConnection };
    return await moveLink(this.podConnection, index, target, { name }, { acceptOtherName: true });
  }

  async restore(index: number, before: LinkState) {
    return await restoreLinkState(this.hostConnection, index, before, this.hostEthtool);
  }

  async state(index: number): Promise<LinkState> {
    return await readLinkState(this.hostConnection, index, this.hostEthtool);
  }

  [Symbol.dispose](): void {
    this.#stack.dispose();
  }
}

const queues = (name: string) => ['name', name, 'numrxqueues', '4', 'numtxqueues', '4'];

let setup: Setup;
beforeEach(() => {
  setup = new Setup();
});
afterEach(() => setup[Symbol.dispose]());

/** What iproute2 sees of a link, without what changes by itself. */
function shown(netns: TestNetns, name: string): object {
  const [link] = netns.ip('link', 'show', 'dev', name);
  const { ifindex: _index, operstate: _state, flags, ...rest } = link;
  const carrierFlags = ['NO-CARRIER', 'LOWER_UP', 'M-DOWN'];
  return { ...rest, flags: flags.filter((flag: string) => !carrierFlags.includes(flag)) };
}

/** All that iproute2 and ethtool can change of a veth end. */
async function changeEverything({ pod, podEthtool }: Setup, index: number): Promise<void> {
  const set = (...change: string[]) => pod.exec('ip', 'link', 'set', 'dev', 'net1', ...change);
  for (const name of ['br-ex', 'a'.repeat(127), 'peer0']) {
    pod.exec('ip', 'link', 'property', 'add', 'dev', 'net1', 'altname', name);
  }
  set('down');
  set('address', '02:66:66:66:66:66');
  set('broadcast', '02:ff:ff:ff:ff:ff');
  set('alias', 'not yours', 'mtu', '1280', 'txqueuelen', '7', 'group', '99');
  set('promisc', 'on', 'allmulticast', 'on', 'arp', 'off', 'multicast', 'off');
  set('gso_max_size', '30000', 'gso_max_segs', '10', 'gro_max_size', '20000');
  set('mode', 'dormant');
  set('name', 'eth0');
  pod.exec('ip', 'link', 'set', 'eth0', 'up');
  pod.exec('ip', 'addr', 'add', '192.0.2.9/24', 'dev', 'eth0');
  pod.exec('tc', 'qdisc', 'add', 'dev', 'eth0', 'clsact');
  pod.exec('tc', 'qdisc', 'add', 'dev', 'eth0', 'root', 'htb');
  await podEthtool.set(index, 'features', { 'tx-tcp-segmentation': false, 'tx-checksum-ip-generic': false });
  await podEthtool.set(index, 'channels', { rx: 2, tx: 3 });
  await attachXdp(setup.podHandle, index);
}

describe('a link that a pod had', () => {
  it('is what it was: names, MAC, MTU, flags, group, queues, limits, features, channels, XDP, qdiscs, addresses', async () => {
    const { host } = setup;
    host.exec('ip', 'link', 'set', 'ens1f0v0', 'alias', 'VF 0', 'mtu', '1400', 'txqueuelen', '500', 'group', '5');
    host.exec('ip', 'link', 'set', 'ens1f0v0', 'gso_max_size', '40000', 'up');
    host.exec('ip', 'link', 'property', 'add', 'dev', 'ens1f0v0', 'altname', 'enp59s0f0v0');
    host.exec('ip', 'addr', 'add', '198.51.100.7/24', 'dev', 'ens1f0v0');
    host.exec('ip', 'addr', 'add', '2001:db8::7/64', 'dev', 'ens1f0v0', 'nodad');
    host.exec('tc', 'qdisc', 'add', 'dev', 'ens1f0v0', 'root', 'pfifo');
    const { index } = await setup.vf();
    await setup.hostEthtool.set(index, 'features', { 'tx-gso-list': false });
    const [before, beforeByIp] = [await setup.state(index), shown(host, 'ens1f0v0')];
    expect(before).toMatchObject({
      ...{ alias: 'VF 0', altNames: ['enp59s0f0v0'], group: 5, txQueueLength: 500, qdiscs: { root: 'pfifo' } },
      ...{ offloadLimits: { gsoMaxBytes: 40_000 }, addresses: ['198.51.100.7/24', '2001:db8::7/64'] },
      ethtool: { channels: { rx: 4, tx: 4 }, features: { 'tx-tcp-segmentation': true, 'rx-gro': false } },
    });

    const { inPod } = await setup.toPod();
    await changeEverything(setup, inPod.index);
    expect(await scrubLink(setup.podConnection, inPod.index)).toEqual([]);
    const back = await setup.back(inPod.index);
    expect(await setup.restore(back.index, before)).toEqual([]);
    expect(await setup.state(back.index)).toEqual(before);
    expect(shown(host, 'ens1f0v0')).toEqual(beforeByIp);
  });
});
