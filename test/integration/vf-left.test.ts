import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Container, PodSandbox } from '../../nri/index.ts';
import { heldDevices } from '../../src/driver/devices/held-devices.ts';
import { openDevices } from '../../src/driver/devices/open-devices.ts';
import type { VfConfig } from '../../src/driver/model/index.ts';
import { createSandboxServices, type SandboxServices } from '../../src/driver/sandbox/index.ts';
import { Store } from '../../src/driver/state/index.ts';
import { CniAttacher } from '../../src/driver/vf/cni-attacher.ts';
import { Attachments } from '../../src/driver/vf/index.ts';
import { ClaimMetadata, layouts } from '../../src/framework/metadata/index.ts';
import { systemClock } from '../../src/lib/clock.ts';
import { KeyedMutex } from '../../src/lib/keyed-mutex.ts';
import { CniRunner } from '../../src/node/cni/index.ts';
import { KernelNetworks } from '../../src/node/netlink/index.ts';
import { RecordingLogger } from '../doubles/logger.ts';
import { TestNetns } from '../doubles/netns.ts';
import { testDriver } from '../doubles/objects.ts';
import { storedClaim, storedDevice } from '../doubles/stored-claims.ts';
import { tempDir } from '../doubles/temp-dir.ts';

const claimOf = (name: string) => ({ namespace: 'default', name, uid: `uid-${name}` });
const deviceOf = (index: number, config: VfConfig) =>
  storedDevice({ pciAddress: `fe00:00:02.${index}`, name: `fe00-00-02-${index}`, config });

/** The sandbox side of a driver with simulated VFs, whose host is a network namespace of its own. */
class Instance implements AsyncDisposable {
  readonly #stack = new AsyncDisposableStack();
  readonly #dir: string;
  readonly store: Store;
  readonly metadata: ClaimMetadata;
  readonly side: SandboxServices;
  readonly logger: RecordingLogger;
  /** Why claims are not ready, and which VFs were configured from outside. */
  readonly failures: string[] = [];
  /** What closed gates have said, by claim. */
  readonly held: string[] = [];
  readonly reconfigured: string[] = [];

  static async start(dir: string, hostPath: string): Promise<Instance> {
    const stack = new AsyncDisposableStack();
    const clock = systemClock;
    const store = stack.use(new Store(join(dir, 'state.db')));
    const networks = stack.use(new KernelNetworks({ procSysDir: '/proc/sys', hostPath }));
    const logger = new RecordingLogger();
    const settings = { simulate: { pfs: 1, vfsPerPf: 2 }, simulatePrefix: 'nsim', nodeName: 'node-1' };
    const devices = stack.use(
      await openDevices(settings as Parameters<typeof openDevices>[0], {
        driver: testDriver,
        host: networks.host.connection,
        clock,
        stateDir: dir,
        store,
        logger,
        held: () => heldDevices(store.claims()),
        unrestored: () => [],
      }),
    );
    const runner = stack.use(new CniRunner({ binDirs: [], cacheDir: join(dir, 'cni'), clock, logger }));
    const attachments = new Attachments({
      networks,
      vfs: devices.vfs,
      cni: new CniAttacher({ runner, clock, logger }),
      store,
      clock,
      logger,
      onConflict: () => undefined,
    });
    return new Instance(stack, dir, { store, networks, attachments, logger });
  }

  private constructor(
    stack: AsyncDisposableStack,
    dir: string,
    parts: { store: Store; networks: KernelNetworks; attachments: Attachments; logger: RecordingLogger },
  ) {
    this.#dir = dir;
    this.store = parts.store;
    this.logger = parts.logger;
    const metadata = new ClaimMetadata({
      enabled: true,
      driver: testDriver,
      dataDir: dir,
      cdiDir: join(dir, 'cdi'),
      layouts: [layouts.v1],
      gate: { program: '/opt/netdra-gate', timeoutSeconds: 100 },
    });
    this.metadata = metadata;
    this.side = createSandboxServices({
      ...parts,
      locks: new KeyedMutex(),
      metadata,
      clock: systemClock,
      liveUpdates: true,
      files: {
        updateRequestMetadata: metadata.update.bind(metadata),
        withdrawMetadata: metadata.withdraw.bind(metadata),
        openGate: metadata.openGate.bind(metadata),
        holdGate: async (claim, sandboxId, reason) => {
          this.held.push(`${claim.name}: ${reason}`);
          await metadata.holdGate(claim, sandboxId, reason);
        },
        endGate: metadata.endGate.bind(metadata),
      },
      attributesOf: () => ({}),
      numa: { check: () => false, observe: () => undefined, alignmentOf: () => undefined },
      reconfigure: async (_, { name }) => void this.reconfigured.push(name),
      isWanted: async () => true,
      runsHooks: () => true,
      onFailure: ({ name }, reason) => this.failures.push(`${name}: ${reason}`),
      onFlapping: () => undefined,
      onWaited: () => undefined,
      onSlow: () => undefined,
      onSynchronized: () => undefined,
      onOtherPod: () => undefined,
    });
    this.#stack.use(stack);
    this.#stack.use(this.side.registry);
  }

  /** Prepares a claim with one request for these VFs. */
  async prepare(name: string, indexes: number | readonly number[], config: VfConfig): Promise<void> {
    const devices = [indexes].flat().map((index) => deviceOf(index, config));
    const requests = { vf: { name: 'vf', devices: devices.map(({ pool, name: of }) => ({ pool, name: of })) } };
    await this.metadata.prepare({ claim: claimOf(name), requests }, new Map());
    this.store.putClaim(storedClaim({ identity: claimOf(name), podUids: ['pod'], devices }));
  }

  /** The hook of a container that has the claim. */
  hook(name: string): { path: string; args: string[] } {
    const claimDir = join(this.#dir, 'dra-device-metadata', `default_${name}`);
    return { path: '/opt/netdra-gate', args: ['netdra-gate', '--claim-dir', claimDir] };
  }

  gate(name: string): string {
    const path = join(this.#dir, 'dra-device-metadata', `default_${name}`, 'gate');
    return existsSync(path) ? (readFileSync(path, 'utf8').split('\n')[1] ?? '') : '';
  }

  file(name: string): string {
    return readFileSync(
      join(this.#dir, 'dra-device-metadata', `default_${name}`, 'vf', 'metadata.json'),
      'utf8',
    ).trim();
  }

  async [Symbol.asyncDispose]() {
    await this.#stack.disposeAsync();
  }
}

let stack: AsyncDisposableStack;
let host: TestNetns;
let pod: TestNetns;
let dir: string;
let driver: Instance;
beforeEach(async () => {
  stack = new AsyncDisposableStack();
  host = stack.use(new TestNetns('host'));
  dir = stack.use(tempDir()).path;
  mkdirSync(join(dir, 'cdi'));
  pod = stack.use(new TestNetns('pod'));
  driver = stack.use(await Instance.start(dir, host.path));
});
afterEach(() => stack.disposeAsync());

const sandbox = () =>
  ({
    id: 's1',
    uid: 'pod',
    namespace: 'default',
    name: 'app',
    runtimeHandler: '',
    namespaces: [{ type: 'network', path: pod.path }],
  }) as unknown as PodSandbox;
const call = { timeoutMs: 2_000, signal: new AbortController().signal };
const linksOf = (netns: TestNetns): string[] => netns.ip('link').map(({ ifname }: { ifname: string }) => ifname);
const configured = { interfaceName: 'net1', mtu: 1400, addresses: ['192.0.2.1/24'] };
const left = /^c: device fe00-00-02-0 \(fe00:00:02\.0\) is no longer in the network namespace of pod default\/app \(/;

describe('a VF that leaves its pod while the pod runs', () => {
  it.each([
    ['moves it to the host', () => pod.exec('ip', 'link', 'set', 'net1', 'netns', host.path)],
    ['deletes it', () => pod.exec('ip', 'link', 'delete', 'net1')],
  ])('closes the start gate of its claim until it is attached again, if a process %s', async (_, leave) => {
    await driver.prepare('c', 0, configured);
    await driver.side.hooks.runPodSandbox(sandbox(), call);
    expect(driver.gate('c')).toBe('served s1');
    leave();
    const closed = /^c: device fe00-00-02-0 .* of pod default\/app/;
    await expect.poll(() => driver.held).toContainEqual(expect.stringMatching(closed));
    await expect.poll(() => driver.failures).toEqual([expect.stringMatching(left)]);
    await expect.poll(() => driver.gate('c')).toBe('served s1');
    const addresses = expect.arrayContaining([expect.objectContaining({ local: '192.0.2.1' })]);
    expect(pod.ip('addr', 'show', 'dev', 'net1')).toMatchObject([{ mtu: 1400, addr_info: addresses }]);
    expect(driver.file('c')).toContain('"generation": 2');
    expect(driver.reconfigured).toEqual(['fe00-00-02-0', 'fe00-00-02-0']);
    expect(driver.logger.messages('warn')).toEqual(['cannot get a sandbox ready yet']);
  });

  it('keeps the start gate closed while it is in another namespace, so that containers are rejected', async () => {
    await driver.prepare('c', 0, configured);
    await driver.prepare('other', 1, { interfaceName: 'net2' });
    await driver.side.hooks.runPodSandbox(sandbox(), call);
    const nested = stack.use(new TestNetns('nested'));
    pod.exec('ip', 'link', 'set', 'net1', 'netns', nested.path);
    const cannotBe = 'device fe00-00-02-0 (fe00:00:02.0) cannot be attached to pod default/app';
    await expect.poll(() => driver.gate('c')).toContain(`waiting s1 ${cannotBe}`);
    expect([driver.file('c'), driver.gate('other')]).toEqual(['', 'served s1']);
    const create = (name: string, createRuntimeHooks: object[]) =>
      driver.side.hooks.createContainer(
        sandbox(),
        { name, mounts: [], createRuntimeHooks } as unknown as Container,
        call,
      );
    await expect(create('main', [driver.hook('c')])).rejects.toThrow(
      `container main cannot start with claim default/c: ${cannotBe}`,
    );
    await create('debugger', []);
    // The other claim of the pod is followed meanwhile.
    pod.exec('ip', 'addr', 'add', '192.0.2.22/24', 'dev', 'net2');
    await expect.poll(() => driver.file('other')).toContain('192.0.2.22/24');
    expect(linksOf(nested)).toContain('net1');
    nested.exec('ip', 'link', 'set', 'net1', 'netns', pod.path);
    await expect.poll(() => driver.gate('c'), { timeout: 60_000 }).toBe('served s1');
    expect(driver.failures.every((failure) => failure.startsWith('c: '))).toBe(true);
    // A VF that is not on the host is in use: it is not configured anew.
    expect(driver.reconfigured).toEqual(['fe00-00-02-0', 'fe00-00-02-1']);
  });

  it('does not make the driver configure the other VF of the request again, whose settings the pod changed', async () => {
    await driver.prepare('c', [0, 1], { mtu: 1400 });
    await driver.side.hooks.runPodSandbox(sandbox(), call);
    // The hook waits half a second for it.
    await expect.poll(() => driver.gate('c'), { timeout: 60_000 }).toBe('served s1');
    const forwarding = '/proc/sys/net/ipv4/conf/nsim0v1/forwarding';
    pod.exec('ip', 'link', 'set', 'nsim0v1', 'mtu', '1300');
    pod.exec('sh', '-c', `echo 1 > ${forwarding}`);
    const other = () => [pod.ip('link', 'show', 'nsim0v1')[0].mtu, pod.exec('cat', forwarding).trim()];
    const nested = stack.use(new TestNetns('nested'));
    pod.exec('ip', 'link', 'set', 'nsim0v0', 'netns', nested.path);
    await expect.poll(() => driver.held.length, { timeout: 60_000 }).toBeGreaterThan(2);
    expect([driver.file('c'), other()]).toEqual(['', [1300, '1']]);
    await driver[Symbol.asyncDispose]();
    const restarted = stack.use(await Instance.start(dir, host.path));
    restarted.side.hooks.synchronize([sandbox()], []);
    await expect.poll(() => restarted.held.length, { timeout: 60_000 }).toBeGreaterThan(0);
    expect(other()).toEqual([1300, '1']);
    nested.exec('ip', 'link', 'set', 'nsim0v0', 'netns', pod.path);
    await expect.poll(() => restarted.gate('c'), { timeout: 60_000 }).toBe('served s1');
    expect(pod.ip('link', 'show', 'nsim0v0')).toMatchObject([{ mtu: 1400 }]);
    expect([restarted.file('c'), other()]).toEqual([expect.stringContaining('1300'), [1300, '1']]);
  });

  it('is noticed by a driver that starts later, and is restored when the pod ends', async () => {
    await driver.prepare('c', 0, configured);
    await driver.side.hooks.runPodSandbox(sandbox(), call);
    await driver[Symbol.asyncDispose]();
    const nested = stack.use(new TestNetns('nested'));
    pod.exec('ip', 'link', 'set', 'net1', 'netns', nested.path);
    const restarted = stack.use(await Instance.start(dir, host.path));
    expect(restarted.gate('c')).toBe('served s1');
    restarted.side.hooks.synchronize([sandbox()], []);
    await expect.poll(() => restarted.failures[0]).toMatch(left);
    expect([restarted.gate('c'), restarted.file('c')]).toEqual([expect.stringContaining('waiting s1'), '']);
    await restarted.side.registry.end({
      podNamespace: 'default',
      podName: 'app',
      sandboxId: 's1',
      podUid: 'pod',
      netnsPath: pod.path,
    });
    expect([linksOf(host).includes('nsim0v0'), linksOf(nested).includes('net1')]).toEqual([true, false]);
  });

  it('is returned by another component, not by the driver, if attach is observe', async () => {
    await driver.prepare('c', 0, { attach: 'observe' });
    const move = () => {
      host.exec('ip', 'link', 'set', 'nsim0v0', 'netns', pod.path);
      pod.exec('ip', 'link', 'set', 'nsim0v0', 'name', 'net1', 'up');
    };
    move();
    await driver.side.hooks.runPodSandbox(sandbox(), call);
    expect(driver.gate('c')).toBe('served s1');
    pod.exec('ip', 'link', 'set', 'net1', 'down', 'name', 'nsim0v0', 'netns', host.path);
    await expect.poll(() => driver.gate('c')).toMatch(/^waiting s1 .*no component has moved the device into/);
    expect([linksOf(host).includes('nsim0v0'), driver.failures[0]]).toEqual([true, expect.stringMatching(left)]);
    move();
    await expect.poll(() => driver.gate('c'), { timeout: 60_000 }).toBe('served s1');
  });
});
