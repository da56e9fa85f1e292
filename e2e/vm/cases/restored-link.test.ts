import { execFileSync } from 'node:child_process';
import { realpathSync } from 'node:fs';
import { basename } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../../src/lib/clock.ts';
import {
  EthtoolConnection,
  moveLink,
  NetnsHandle,
  RtnlConnection,
  scrubLink,
} from '../../../src/node/netlink/index.ts';
import { DriverBinding, VfHardware, type VfSnapshot } from '../../../src/node/sriov/index.ts';
import { EthtoolIoctl } from '../../../test/doubles/ethtool-ioctl.ts';
import { TestNetns } from '../../../test/doubles/netns.ts';
import { attachXdp } from '../../../test/doubles/xdp.ts';
import { hostVfStates, linkOf, pfInfoOf, type VfState } from '../vfs.ts';

const ip = (...args: string[]) => execFileSync('ip', args).toString();

/** Indexes of words in the structs of ethtool. */
const [rxRing, txRing, rxUsecs] = [4, 7, 0];

/** A VF of the machine, whose interface an operator has configured, and a pod. */
class Setup implements Disposable {
  readonly #stack = new DisposableStack();
  readonly pod = this.#stack.use(new TestNetns('pod'));
  readonly podHandle = this.#stack.use(this.pod.open());
  readonly hostHandle = this.#stack.use(NetnsHandle.own());
  readonly host = this.#stack.use(RtnlConnection.open());
  readonly hostEthtool = this.#stack.use(EthtoolConnection.open());
  readonly hostIoctl = this.#stack.use(new EthtoolIoctl(this.hostHandle));
  readonly vf: VfState;
  readonly address: { pciAddress: string; pfAddress: string; vfIndex: number };
  readonly hardware: VfHardware;

  constructor(vf: VfState) {
    this.vf = vf;
    const pfAddress = basename(realpathSync(`/sys/class/net/${vf.pf}/device`));
    this.address = { pciAddress: vf.pciAddress, pfAddress, vfIndex: vf.index };
    const binding = new DriverBinding();
    this.hardware = new VfHardware({ binding, host: this.host, ethtool: this.hostEthtool, clock: systemClock });
  }

  /** Releases what keeps the pod's namespace alive. */
  endPod(): void {
    this.podHandle[Symbol.dispose]();
    this.pod.unmount();
  }

  [Symbol.dispose](): void {
    this.#stack.dispose();
  }
}

let before: VfState[];
let setup: Setup;
beforeEach(() => {
  before = hostVfStates();
  // No other case gives it a MAC: one that the PF has set cannot be changed in a pod.
  setup = new Setup(before.at(-1)!);
  const { name } = setup.vf;
  ip('link', 'set', name, 'alias', 'first VF', 'txqueuelen', '500', 'group', '5');
  ip('link', 'property', 'add', 'dev', name, 'altname', 'enp9s16v6');
  setup.hostIoctl.set(name, 'rings', { [rxRing]: 512, [txRing]: 128 });
  setup.hostIoctl.set(name, 'coalescing', { [rxUsecs]: 20 });
  ip('link', 'set', name, 'up');
});
afterEach(() => {
  setup[Symbol.dispose]();
  const name = linkOf(setup.vf)?.ifname ?? '';
  ip('link', 'set', name, 'down', 'alias', '', 'txqueuelen', '1000', 'group', 'default');
  ip('link', 'property', 'del', 'dev', name, 'altname', 'enp9s16v6');
  expect(hostVfStates()).toEqual(before);
});

/** The VF's interface on the host as seen by iproute2, the PF and ethtool's ioctls, without volatile values. */
function seenOnHost({ vf, hostIoctl }: Setup): object {
  const { ifname } = linkOf(vf) ?? {};
  if (ifname === undefined) throw new Error(`${vf.name} is not on the host`);
  const [link] = JSON.parse(ip('-j', '-d', 'link', 'show', 'dev', ifname));
  // igbvf generates the permanent address when it is bound, and `ip` shows it if it differs from the address.
  const { ifindex: _index, operstate: _state, permaddr: _random, flags, qdisc: _default, ...rest } = link;
  const isSet = (flag: string) => !['NO-CARRIER', 'LOWER_UP'].includes(flag);
  const structs = ['rings', 'coalescing', 'txChecksum', 'tcpSegmentation', 'genericReceiveOffload'] as const;
  return {
    ...rest,
    flags: flags.filter(isSet),
    ethtool: structs.map((struct) => hostIoctl.get(ifname, struct)),
    pf: pfInfoOf(vf),
    driver: hostVfStates().find(({ pciAddress }) => pciAddress === vf.pciAddress)?.driver,
  };
}

/** Moves the VF into the pod, where a process with NET_ADMIN changes all it can, and a plugin changes a PF setting. */
async function misuse({ host, pod, podHandle, vf }: Setup): Promise<void> {
  using connection = RtnlConnection.open(podHandle);
  using ioctl = new EthtoolIoctl(podHandle);
  const link = (await host.link({ name: vf.name }))!;
  const inPod = await moveLink(host, link, { netns: podHandle, connection }, { name: 'net1' });
  const set = (...change: string[]) => pod.exec('ip', 'link', 'set', 'dev', 'net1', ...change);
  for (const altName of ['br-ex', vf.pf, 'a'.repeat(127)]) {
    pod.exec('ip', 'link', 'property', 'add', 'dev', 'net1', 'altname', altName);
  }
  set('address', '02:66:66:66:66:66', 'alias', 'not yours', 'mtu', '1280', 'txqueuelen', '7', 'group', '99');
  set('promisc', 'on', 'allmulticast', 'on', 'arp', 'off', 'multicast', 'off');
  set('gso_max_size', '30000', 'gso_max_segs', '10', 'mode', 'dormant');
  ioctl.set('net1', 'rings', { [rxRing]: 80, [txRing]: 80 });
  ioctl.set('net1', 'coalescing', { [rxUsecs]: 200 });
  ioctl.set('net1', 'tcpSegmentation', { 0: 0 });
  ioctl.set('net1', 'genericReceiveOffload', { 0: 0 });
  set('up');
  pod.exec('ip', 'addr', 'add', '192.0.2.9/24', 'dev', 'net1');
  pod.exec('tc', 'qdisc', 'replace', 'dev', 'net1', 'root', 'pfifo', 'limit', '7');
  await attachXdp(podHandle, inPod.index);
  ip('link', 'set', vf.pf, 'vf', String(vf.index), 'vlan', '7', 'qos', '3', 'spoofchk', 'off', 'trust', 'on');
}

describe('a VF with every setting changed by its pod', () => {
  let seen: object;
  let vfBefore: VfSnapshot;
  beforeEach(async () => {
    seen = seenOnHost(setup);
    // Serialized as in the store.
    vfBefore = JSON.parse(JSON.stringify(await setup.hardware.snapshot(setup.address)));
    await misuse(setup);
  });

  it('is restored after its pod ends', async () => {
    const { host, hostHandle, podHandle, vf, hardware, address } = setup;
    {
      using pod = RtnlConnection.open(podHandle);
      const link = (await pod.link({ name: 'net1' }))!;
      expect(await scrubLink(pod, link.index)).toEqual([]);
      await moveLink(pod, link, { netns: hostHandle, connection: host }, { name: vf.name }, { acceptOtherName: true });
    }
    expect(seenOnHost(setup)).not.toEqual(seen);
    await hardware.restore(address, vfBefore, { reset: false });
    expect(seenOnHost(setup)).toEqual(seen);
    expect(await hardware.snapshot(address)).toEqual(vfBefore);
    // Its address has not become an administrative one: the next pod can choose another.
    ip('link', 'set', vf.name, 'address', '02:77:77:77:77:77');
    ip('link', 'set', vf.name, 'address', vf.address);
  });

  it('is restored after its namespace was deleted without cleanup and the kernel reset the VF', async () => {
    const { vf, hardware, address } = setup;
    setup.endPod();
    await expect.poll(() => linkOf(vf), { timeout: 30_000 }).toMatchObject({ address: '02:66:66:66:66:66' });
    await hardware.restore(address, vfBefore, { reset: true });
    expect(seenOnHost(setup)).toEqual(seen);
    expect(await hardware.snapshot(address)).toEqual(vfBefore);
    // A name that the pod chose for the VF is available on the host again.
    ip('link', 'add', 'br-ex', 'type', 'bridge');
    ip('link', 'delete', 'br-ex');
  });
});
