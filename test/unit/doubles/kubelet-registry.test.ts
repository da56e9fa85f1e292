import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Kubelet, type KubeletOptions } from '../../doubles/kubelet.ts';
import { tempDir } from '../../doubles/temp-dir.ts';
import { TestDriver, type TestDriverOptions } from './test-driver.ts';

const driver = 'a.example';

let dir: ReturnType<typeof tempDir>;
let stack: DisposableStack;

beforeEach(() => {
  stack = new DisposableStack();
  dir = stack.use(tempDir());
  mkdirSync(join(dir.path, 'dra'));
});
afterEach(() => stack.dispose());

async function startKubelet(options: Partial<KubeletOptions> = {}): Promise<Kubelet> {
  const getClaim = () => Promise.reject(new Error('no claims here'));
  return stack.use(await Kubelet.start({ registryDir: dir.path, getClaim, retryMs: 20, ...options }));
}

async function startDriver(options: Partial<TestDriverOptions> = {}): Promise<TestDriver> {
  return stack.use(await TestDriver.start({ dir: dir.path, driver, ...options }));
}

describe('registration with the kubelet stand-in', () => {
  it('takes drivers that were there before it and those that come later', async () => {
    const early = await startDriver();
    const kubelet = await startKubelet();
    expect(await kubelet.waitForDriver(driver)).toMatchObject({ service: 'v1.DRAPlugin', endpoint: early.endpoint });
    const late = await startDriver({ driver: 'b.example' });
    await kubelet.waitForDriver('b.example');
    await kubelet.until(() => kubelet.attempts.length === 2);
    expect(late.statuses).toEqual([{ pluginRegistered: true, error: '' }]);
  });

  it('dials the registration socket with its path as authority, and the DRA socket as localhost', async () => {
    const plugin = await startDriver();
    const kubelet = await startKubelet();
    await kubelet.waitForDriver(driver);
    await kubelet.client(driver).nodePrepareResources([]);
    expect(plugin.authorities).toEqual([
      `GetInfo ${encodeURIComponent(plugin.socketPath)}`,
      'NodePrepareResources localhost',
    ]);
  });

  it.each([
    [['v1beta1.DRAPlugin', 'v1.DRAPlugin'], 'v1beta1.DRAPlugin'],
    [['v9.DRAPlugin', 'v1.DRAResourceHealth', 'v1.DRAPlugin'], 'v1.DRAPlugin'],
  ])('of %j takes %s', async (supportedVersions, service) => {
    const plugin = await startDriver({ supportedVersions });
    const kubelet = await startKubelet();
    expect((await kubelet.waitForDriver(driver)).service).toBe(service);
    await kubelet.client(driver).nodePrepareResources([]);
    expect(plugin.calls[0]?.method).toBe(`${service}/NodePrepareResources`);
  });

  it.each<[string, Partial<TestDriverOptions>, RegExp]>([
    ['another type of plugin', { type: 'CSIPlugin' }, /no handler registered for plugin type: CSIPlugin/],
    ['no known service', { supportedVersions: ['1.0.0'] }, /none of the gRPC services .* is supported: 1.0.0/],
    ['no service', { supportedVersions: [] }, /empty list of supported gRPC services/],
    ['a relative endpoint', { endpoint: 'dra.sock' }, /not an absolute path/],
    ['a strange name', { driver: 'no_name' }, /invalid driver name "no_name"/],
  ])('refuses %s and tells the driver', async (_what, options, error) => {
    const plugin = await startDriver(options);
    const kubelet = await startKubelet();
    await kubelet.until(() => kubelet.attempts.length > 0);
    expect(plugin.statuses[0]).toMatchObject({ pluginRegistered: false, error: expect.stringMatching(error) });
    expect(kubelet.attempts[0]?.error).toMatch(error);
    expect(kubelet.plugins()).toEqual([]);
  });

  it('ignores hidden sockets and plain files', async () => {
    const kubelet = await startKubelet();
    writeFileSync(join(dir.path, 'file-reg.sock'), '');
    const hidden = await startDriver({ driver: '.hidden' });
    await startDriver();
    await kubelet.waitForDriver(driver);
    expect(hidden.authorities).toEqual([]);
    expect(kubelet.plugins()).toHaveLength(1);
  });

  it('gives up on a driver that does not answer in time, and tries again', async () => {
    const plugin = await startDriver({ getInfoDelayMs: 60 });
    const kubelet = await startKubelet({ getInfoTimeoutMs: 20 });
    await kubelet.until(() => kubelet.attempts.length >= 2);
    expect(kubelet.attempts[0]?.error).toMatch(/GetInfo at socket .*DeadlineExceeded/);
    expect(plugin.statuses).toEqual([]);
  });

  it('does not take two instances with the same endpoint', async () => {
    const first = await startDriver();
    const kubelet = await startKubelet();
    await kubelet.waitForDriver(driver);
    const second = await startDriver({ instance: 'two', endpoint: first.endpoint });
    await kubelet.until(() => second.statuses.length > 0);
    expect(second.statuses[0]?.error).toMatch(/endpoint .* already registered/);
  });

  it('calls the newest instance that is connected', async () => {
    const one = await startDriver({ instance: 'one' });
    const kubelet = await startKubelet();
    await kubelet.waitForDriver(driver);
    const two = await startDriver({ instance: 'two' });
    await kubelet.until(() => kubelet.plugins(driver).filter(({ isConnected }) => isConnected).length === 2);
    await kubelet.client(driver).nodePrepareResources([]);
    expect([one.calls.length, two.calls.length]).toEqual([0, 1]);
    two.kill();
    await kubelet.until(() => kubelet.plugins(driver).filter(({ isConnected }) => isConnected).length === 1);
    await kubelet.client(driver).nodePrepareResources([]);
    expect([one.calls.length, two.calls.length]).toEqual([1, 1]);
  });

  it('forgets a driver whose socket is removed, and registers it anew when it is back', async () => {
    const kubelet = await startKubelet();
    const first = await startDriver();
    await kubelet.waitForDriver(driver);
    first[Symbol.dispose]();
    await kubelet.until(() => kubelet.plugins(driver).length === 0);
    expect(() => kubelet.client(driver)).toThrow(`DRA driver ${driver} is not registered`);
    const second = await startDriver();
    await kubelet.waitForDriver(driver);
    expect(second.statuses).toEqual([{ pluginRegistered: true, error: '' }]);
  });

  it('wipes the slices of the node at its start, and those of a driver that stays away', async () => {
    const wiped: (string | undefined)[] = [];
    const wipeSlices = async (name: string | undefined) => void wiped.push(name);
    const plugin = await startDriver();
    const kubelet = await startKubelet({ wipeSlices, wipeDelayMs: 30 });
    await kubelet.waitForDriver(driver);
    expect(wiped).toEqual([undefined]);
    plugin.kill();
    await kubelet.until(() => wiped.length === 2);
    expect(wiped).toEqual([undefined, driver]);
  });

  it('wipes nothing when the driver is back in time', async () => {
    const wiped: (string | undefined)[] = [];
    const kubelet = await startKubelet({ wipeSlices: async (name) => void wiped.push(name), wipeDelayMs: 400 });
    const plugin = await startDriver();
    await kubelet.waitForDriver(driver);
    plugin[Symbol.dispose]();
    await kubelet.until(() => kubelet.plugins(driver).length === 0);
    await startDriver();
    await kubelet.waitForDriver(driver);
    await new Promise((resolve) => setTimeout(resolve, 500));
    expect(wiped).toEqual([undefined]);
  });
});
