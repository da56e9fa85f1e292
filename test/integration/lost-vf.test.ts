import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { DeviceList } from '../../src/driver/devices/device-list.ts';
import { heldDevices } from '../../src/driver/devices/held-devices.ts';
import { openDevices } from '../../src/driver/devices/open-devices.ts';
import { Attachments, CniAttacher, KernelNetworks } from '../../src/driver/sandbox/index.ts';
import { Store } from '../../src/driver/state/index.ts';
import { systemClock } from '../../src/lib/clock.ts';
import { CniRunner } from '../../src/node/cni/index.ts';
import { RecordingLogger } from '../doubles/logger.ts';
import { TestNetns } from '../doubles/netns.ts';
import { tempDir } from '../doubles/temp-dir.ts';

const first = { pciAddress: 'fe00:00:02.0', name: 'fe00-00-02-0' };

/** One instance of the driver's parts that know where VFs are; another one on the same state is a restart. */
class Instance implements AsyncDisposable {
  readonly #stack: AsyncDisposableStack;
  readonly store: Store;
  readonly devices: DeviceList;
  readonly networks: KernelNetworks;
  readonly attachments: Attachments;

  private constructor(
    stack: AsyncDisposableStack,
    parts: Pick<Instance, 'attachments' | 'networks' | 'store' | 'devices'>,
  ) {
    this.#stack = stack;
    this.store = parts.store;
    this.devices = parts.devices;
    this.attachments = parts.attachments;
    this.networks = parts.networks;
  }

  static async start(stateDir: string, hostPath: string, logger: RecordingLogger): Promise<Instance> {
    const stack = new AsyncDisposableStack();
    const clock = systemClock;
    const store = stack.use(new Store(join(stateDir, 'state.db')));
    const networks = stack.use(new KernelNetworks({ procSysDir: '/proc/sys', hostPath }));
    const { connection: host } = networks.host;
    const devices = stack.use(
      await openDevices(
        { simulate: { pfs: 1, vfsPerPf: 2 }, simulatePrefix: 'nlost' },
        {
          driver: 'sriov.test',
          host,
          clock,
          stateDir,
          logger,
          held: () => heldDevices(store.claims()),
          unrestored: () => [],
        },
      ),
    );
    const runner = stack.use(new CniRunner({ binDirs: [], cacheDir: join(stateDir, 'cni'), clock, logger }));
    const cni = new CniAttacher({ runner, clock, logger });
    const attachments = new Attachments({ networks, vfs: devices.vfs, cni, store, clock });
    return new Instance(stack, { store, devices, networks, attachments });
  }

  async [Symbol.asyncDispose]() {
    await this.#stack.disposeAsync();
  }
}

let stack: AsyncDisposableStack;
let host: TestNetns;
let stateDir: string;
let logger: RecordingLogger;
beforeEach(() => {
  stack = new AsyncDisposableStack();
  host = stack.use(new TestNetns('host'));
  stateDir = stack.use(tempDir()).path;
  logger = new RecordingLogger();
});
afterEach(() => stack.disposeAsync());

const start = async () => stack.use(await Instance.start(stateDir, host.path, logger));
const offered = ({ devices }: Instance) => devices.offered().map(({ name }) => name);
const linkOnHost = (name: string) => {
  const links: { ifname: string; address: string; mtu: number; flags: string[]; linkinfo?: object }[] = host.ip('link');
  return links.find(({ ifname }) => ifname === name);
};

/** A process that is all that is left of a sandbox: nothing but the process leads to its network namespace. */
async function holdNamespace(pod: TestNetns): Promise<ChildProcess> {
  const holder = spawn('nsenter', [`--net=${pod.path}`, 'sh', '-c', 'echo in; exec sleep 600'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  stack.defer(async () => {
    if (holder.exitCode !== null || holder.signalCode !== null) return;
    holder.kill('SIGKILL');
    await once(holder, 'exit');
  });
  await once(holder.stdout!, 'data');
  return holder;
}

/** Prepares a claim for the first VF and puts it into a namespace, as the hook does. */
async function attach({ store, attachments, networks }: Instance, pod: TestNetns): Promise<void> {
  const device = { ...first, pool: 'node', request: 'vf', config: { interfaceName: 'net1', mtu: 1400 } };
  const identity = { uid: 'claim', namespace: 'default', name: 'claim' };
  store.putClaim({ identity, podUids: ['pod'], state: 'prepared', devices: [device] });
  using namespace = networks.open(pod.path);
  if (namespace === undefined) throw new Error(`there is no namespace at ${pod.path}`);
  const place = { podUid: 'pod', podNamespace: 'default', podName: 'app', sandboxId: 'sandbox', netnsPath: pod.path };
  await attachments.attach('claim', device, place, attachments.podLinks(namespace), new AbortController().signal);
}

/** What containerd does after a cancelled RunPodSandbox: the path goes, the sandbox's process does not. */
function removePath(pod: TestNetns): void {
  pod.unmount();
  rmSync(pod.path);
  expect(existsSync(pod.path)).toBe(false);
}

/** The links that the process sees. */
const linksOf = ({ pid }: ChildProcess) => host.exec('nsenter', `--net=/proc/${pid}/ns/net`, 'ip', '-o', 'link');

describe('a VF in a network namespace whose path is gone while a process lives in it', () => {
  it('is on the host again after unprepare, as it was, also by a driver that was started since', async () => {
    const driver = await start();
    const before = linkOnHost('nlost0v0');
    const pod = stack.use(new TestNetns('pod'));
    await attach(driver, pod);
    const holder = await holdNamespace(pod);
    removePath(pod);
    await driver[Symbol.asyncDispose]();
    expect(linksOf(holder)).toContain('net1');

    const restarted = await start();
    await restarted.attachments.detach('claim', { ...restarted.store.claim('claim')!.devices[0]! });
    expect(linkOnHost('nlost0v0')).toMatchObject({
      ifname: 'nlost0v0',
      address: before!.address,
      mtu: before!.mtu,
      flags: before!.flags,
    });
    expect(linksOf(holder)).not.toContain('net1');
    expect(restarted.store.claim('claim')?.devices[0]).not.toHaveProperty('attachment');
    expect(logger.messages('warn')).toEqual(['VF recreated: the network namespace that it was in cannot be reached']);
    // The next pod gets it.
    const next = stack.use(new TestNetns('next'));
    await attach(restarted, next);
    expect(next.ip('link').map(({ ifname }: { ifname: string }) => ifname)).toContain('net1');
  });

  it('is not offered while no claim has it, and again when it is made anew', async () => {
    const driver = await start();
    const pod = stack.use(new TestNetns('pod'));
    await attach(driver, pod);
    const holder = await holdNamespace(pod);
    removePath(pod);
    // What drivers before this one have left.
    driver.store.deleteClaim('claim');
    await driver[Symbol.asyncDispose]();

    const restarted = await start();
    expect(offered(restarted)).toEqual(['fe00-00-02-1']);
    await restarted.devices.recreateLost(new AbortController().signal);
    await restarted.devices.scan();
    expect(offered(restarted)).toEqual(['fe00-00-02-0', 'fe00-00-02-1']);
    expect(linkOnHost('nlost0v0')).toBeDefined();
    expect(linksOf(holder)).not.toContain('net1');
  });

  it('stays in a sandbox that its claim has it for', async () => {
    const driver = await start();
    const pod = stack.use(new TestNetns('pod'));
    await attach(driver, pod);
    await driver.devices.scan();
    await driver.devices.scan();
    expect(offered(driver)).toEqual(['fe00-00-02-0', 'fe00-00-02-1']);
    await driver.devices.recreateLost(new AbortController().signal);
    expect(pod.ip('link').map(({ ifname }: { ifname: string }) => ifname)).toContain('net1');
  });
});
