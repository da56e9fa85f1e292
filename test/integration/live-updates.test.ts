import { readdirSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { PodSandbox } from '../../nri/index.ts';
import { systemClock } from '../../src/clock.ts';
import { NetworkWatch } from '../../src/netlink/index.ts';
import { LiveUpdates } from '../../src/sandbox/live-updates.ts';
import { RecordingLogger } from '../doubles/logger.ts';
import { TestNetns } from '../doubles/netns.ts';

const openDescriptors = () => readdirSync('/proc/self/fd').length;
let netns: TestNetns;

beforeEach(() => {
  netns = new TestNetns();
  netns.exec('ip', 'link', 'add', 'vf0', 'type', 'veth', 'peer', 'name', 'peer0');
  netns.exec('ip', 'link', 'set', 'peer0', 'up');
});
afterEach(() => netns[Symbol.dispose]());

describe('NetworkWatch', () => {
  it.each([
    ['an address that comes', ['addr', 'add', '192.0.2.1/24', 'dev', 'vf0']],
    ['an IPv6 address that comes', ['addr', 'add', '2001:db8::1/64', 'dev', 'vf0']],
    ['another MTU', ['link', 'set', 'vf0', 'mtu', '1300']],
    ['another MAC', ['link', 'set', 'vf0', 'address', '02:00:00:00:00:09']],
    ['a link that goes up', ['link', 'set', 'vf0', 'up']],
  ])('tells of %s', async (_, command) => {
    let changes = 0;
    using handle = netns.open();
    using _watch = NetworkWatch.open(handle, () => changes++);
    netns.exec('ip', ...command);
    await expect.poll(() => changes).toBeGreaterThan(0);
  });

  it('says nothing of other namespaces, and nothing more once it is closed', async () => {
    let changes = 0;
    using other = new TestNetns('other');
    using handle = netns.open();
    const watch = NetworkWatch.open(handle, () => changes++);
    other.exec('ip', 'link', 'set', 'lo', 'up');
    await systemClock.sleep(100);
    expect(changes).toBe(0);
    watch[Symbol.dispose]();
    netns.exec('ip', 'link', 'set', 'vf0', 'mtu', '1300');
    await systemClock.sleep(100);
    expect(changes).toBe(0);
  });
});

describe('LiveUpdates', () => {
  const logger = new RecordingLogger();
  const pod = (): PodSandbox =>
    ({
      id: 'sandbox',
      name: 'p',
      namespace: 'ns',
      uid: 'u',
      namespaces: [{ type: 'network', path: netns.path }],
    }) as Partial<PodSandbox> as PodSandbox;

  it('makes one update of a burst of changes, within a second', async () => {
    const refreshed: number[] = [];
    await using live = new LiveUpdates({ clock: systemClock, logger });
    live.start(pod(), async () => void refreshed.push(performance.now()));
    await expect.poll(() => refreshed.length).toBe(1);
    const startedAt = performance.now();
    for (let host = 1; host <= 20; host++) netns.exec('ip', 'addr', 'add', `192.0.2.${host}/32`, 'dev', 'vf0');
    const changedAt = performance.now();
    await expect.poll(() => refreshed.length, { timeout: 2_000 }).toBeGreaterThan(1);
    await systemClock.sleep(600);
    // One for each quarter of a second that the burst lasted, and not one for each of its changes.
    expect(refreshed.length - 1).toBeLessThanOrEqual(Math.ceil((changedAt - startedAt) / 250) + 1);
    expect(refreshed.at(-1)! - changedAt).toBeLessThan(1_000);
  });

  it('looks again when a change comes while it looks, and goes on after a failure', async () => {
    let looks = 0;
    await using live = new LiveUpdates({ clock: systemClock, logger });
    live.start(pod(), async () => {
      looks++;
      if (looks === 1) netns.exec('ip', 'link', 'set', 'vf0', 'mtu', '1301');
      if (looks === 2) throw new Error('planted');
    });
    await expect.poll(() => looks, { timeout: 2_000 }).toBe(2);
    await expect
      .poll(() => logger.messages('warn'))
      .toContain('a change of the pod could not be written to its metadata');
    netns.exec('ip', 'link', 'set', 'vf0', 'mtu', '1302');
    await expect.poll(() => looks, { timeout: 2_000 }).toBe(3);
  });

  it('lets go of a namespace that the runtime has let go of, and leaks no descriptor', async () => {
    const before = openDescriptors();
    await using live = new LiveUpdates({ clock: systemClock, logger });
    live.start(pod(), async () => undefined);
    live.start(pod(), async () => undefined);
    expect(live.size).toBe(1);
    netns.unmount();
    await expect.poll(() => live.size, { timeout: 3_000 }).toBe(0);
    await expect.poll(openDescriptors).toBeLessThanOrEqual(before);
  });

  it('watches nothing of a pod that is gone or uses the network of the host', async () => {
    await using live = new LiveUpdates({ clock: systemClock, logger });
    live.start({ ...pod(), namespaces: [] }, async () => undefined);
    live.start({ ...pod(), namespaces: [{ type: 'network', path: '/nowhere' }] }, async () => undefined);
    expect(live.size).toBe(0);
  });
});
