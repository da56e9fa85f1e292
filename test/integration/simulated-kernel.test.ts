import { release } from 'node:os';
import { expect, it } from 'vitest';
import type { LinkConnection } from '../../src/driver/vf/networks.ts';
import { NetlinkError, type NetnsReference, RtnlConnection } from '../../src/node/netlink/index.ts';
import { TestNetns } from '../doubles/netns.ts';
import { Hardware } from '../simulation/hardware.ts';
import { Kernel } from '../simulation/kernel.ts';
import { SimNetworks } from '../simulation/networks.ts';
import { Process, Simulator } from '../simulation/simulator.ts';
import { Tape } from '../simulation/tape.ts';

/** Two namespaces: one with a pair `vf` and `peer`, one that is empty. */
interface Place {
  connection: LinkConnection;
  netns: NetnsReference;
}

interface Setup {
  host: Place;
  pod: Place;
  /** Waits for a call. */
  await<T>(call: Promise<T>): Promise<T>;
}

/** What a request has come to, and what the links are like afterwards. */
type Line = [step: string, outcome: string, host: unknown[], pod: unknown[]];

async function linksOf({ connection }: Place, setup: Setup): Promise<unknown[]> {
  const links = (await setup.await(connection.links())).filter(({ name }) => name !== 'lo');
  const lines: ({ name: string } & Record<string, unknown>)[] = [];
  for (const { index, name, altNames, up, mtuBytes, alias } of links) {
    const addresses = await setup.await(connection.addresses(index));
    const global = addresses.filter(({ scope }) => scope === 'global').map(({ cidr }) => cidr);
    lines.push({ name, altNames: altNames.sort(), up, mtuBytes, alias, addresses: global.sort() });
  }
  return lines.sort((left, right) => (left.name < right.name ? -1 : 1));
}

/** Requests in an order in which each meets what the kernel refuses, or changes besides. */
async function script(setup: Setup): Promise<Line[]> {
  const { host, pod } = setup;
  const lines: Line[] = [];
  const find = async ({ connection }: Place, name: string) => {
    const link = await setup.await(connection.link({ name }));
    return link?.index ?? 0;
  };
  const step = async (what: string, request: () => Promise<unknown>) => {
    const outcome = await setup.await(request()).then(
      () => 'done',
      (error: unknown) => (error instanceof NetlinkError ? String(error.errno) : String(error)),
    );
    lines.push([what, outcome, await linksOf(host, setup), await linksOf(pod, setup)]);
  };
  const vf = await find(host, 'vf0');
  await step('mtu', () => host.connection.setLink(vf, { mtuBytes: 1400, alias: 'a' }));
  await step('altname', () => host.connection.addAltName(vf, 'other'));
  await step('altname that is its own', () => host.connection.addAltName(vf, 'other'));
  await step('altname of another link', () => host.connection.addAltName(vf, 'peer0'));
  await step('name that is its own altname', () => host.connection.setLink(vf, { name: 'other' }));
  await step('name of another link', () => host.connection.setLink(vf, { name: 'peer0' }));
  await step('altname as the name of another', async () => {
    await host.connection.setLink(await find(host, 'peer0'), { name: 'other' });
  });
  await step('addresses', async () => {
    await host.connection.addAddress(vf, '192.0.2.7/24', 'none');
    await host.connection.addAddress(vf, '2001:db8::7/64', 'none');
  });
  await step('address again', () => host.connection.addAddress(vf, '192.0.2.7/24'));
  await step('address that it has not', () => host.connection.removeAddress(vf, '192.0.2.8/24'));
  await step('up', () => host.connection.setLink(vf, { up: true }));
  await step('name of a link that is up', () => host.connection.setLink(vf, { name: 'vf-up' }));
  await step('down', () => host.connection.setLink(vf, { up: false }));
  await step('name back', () => host.connection.setLink(vf, { name: 'vf0' }));
  await step('to the pod, under a new name', () => host.connection.setLink(vf, { name: 'net1', netns: pod.netns }));
  const inPod = await find(pod, 'net1');
  await step('up in the pod', () => pod.connection.setLink(inPod, { up: true }));
  await step('address in the pod', () => pod.connection.addAddress(inPod, '192.0.2.9/24', 'none'));
  await step('back, where the name is taken', () => {
    return pod.connection.setLink(inPod, { name: 'peer0', netns: host.netns });
  });
  await step('index that is gone', () => pod.connection.setLink(inPod, { up: true }));
  const again = await find(host, 'net1');
  await step('name after that', () => host.connection.setLink(again, { name: 'peer2' }));
  await step('to the pod, with an altname that is free there', () =>
    host.connection.setLink(again, { netns: pod.netns }),
  );
  await step('an altname on the host', async () => {
    await host.connection.addAltName(await find(host, 'peer0'), 'other');
  });
  await step('back, with an altname that is taken', async () => {
    await pod.connection.setLink(await find(pod, 'peer2'), { netns: host.netns });
  });
  return lines;
}

async function onKernel(): Promise<Line[]> {
  using stack = new DisposableStack();
  const place = (name: string) => {
    const netns = stack.use(new TestNetns(name));
    const handle = stack.use(netns.open());
    return { netns: handle, connection: stack.use(RtnlConnection.open(handle)), test: netns };
  };
  const [host, pod] = [place('host'), place('pod')];
  host.test.exec('ip', 'link', 'add', 'vf0', 'type', 'veth', 'peer', 'peer0');
  return await script({ host, pod, await: (call) => call });
}

async function simulated(): Promise<Line[]> {
  const simulator = new Simulator(Tape.of([]));
  const [major = 0, minor = 0] = release().split('.').map(Number);
  const kernel: Kernel = new Kernel({
    simulator,
    renamesLinksThatAreUp: major > 6 || (major === 6 && minor >= 2),
    udevAddsAltNames: false,
    udevNameOf: () => undefined,
    hasIpv6: false,
  });
  const process = new Process(simulator, 'test');
  const hardware = new Hardware({ kernel, simulator, count: 0, pfs: 1 });
  kernel.removeLink(hardware.pfs[0].link);
  const networks = new SimNetworks({
    simulator,
    kernel,
    hardware,
    process,
    isLost: () => false,
    readFails: () => false,
  });
  kernel.mounts.set('/pod', kernel.createNamespace('pod', {}));
  kernel.addVeth(
    kernel.host,
    { name: 'vf0', hardwareAddress: '02:00:00:00:00:01' },
    { name: 'peer0', hardwareAddress: '02:00:00:00:00:02' },
  );
  const pod = networks.open('/pod');
  if (pod === undefined) throw new Error('there is no namespace');
  const wait = async <T>(call: Promise<T>): Promise<T> => {
    let isOver = false;
    const over = () => {
      isOver = true;
    };
    call.then(over, over);
    while (!isOver) {
      await simulator.runUntil(simulator.nowMs + 10, () => undefined);
      // Others may be waiting in the same way.
      await new Promise((resolve) => setImmediate(resolve));
    }
    return await call;
  };
  return await script({ host: networks.host, pod, await: wait });
}

it('the simulated kernel answers requests like the real kernel, and leaves links in the same state', async () => {
  const [real, simulation] = [await onKernel(), await simulated()];
  expect(real.map(([step]) => step).length).toBeGreaterThan(20);
  for (const [at, line] of real.entries()) expect(simulation[at]).toEqual(line);
});
