import { spawn } from 'node:child_process';
import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Follow } from '../../src/driver/sandbox/follow.ts';
import { KernelNetworks } from '../../src/driver/sandbox/index.ts';
import { NamespaceEnds } from '../../src/driver/sandbox/namespace-ends.ts';
import { type Clock, systemClock } from '../../src/lib/clock.ts';
import { NetworkWatch } from '../../src/node/netlink/index.ts';
import { TestNetns } from '../doubles/netns.ts';
import { tempDir } from '../doubles/temp-dir.ts';

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
  ])('reports %s', async (_, command) => {
    let changes = 0;
    using handle = netns.open();
    using _watch = NetworkWatch.open(handle, () => changes++);
    netns.exec('ip', ...command);
    await expect.poll(() => changes).toBeGreaterThan(0);
  });

  it('reports the end of duplicate address detection', async () => {
    netns.exec('ip', 'link', 'set', 'vf0', 'up');
    using handle = netns.open();
    const isTentative = () => netns.exec('ip', '-6', 'addr', 'show', 'dev', 'vf0').includes('tentative');
    await expect.poll(isTentative, { interval: 1 }).toBe(true);
    let changes = 0;
    using _watch = NetworkWatch.open(handle, () => changes++);
    let before = 0;
    while (isTentative()) {
      before = changes;
      await systemClock.sleep(10);
    }
    await expect.poll(() => changes).toBeGreaterThan(before);
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

describe('NetworkWatch, when more changes than its socket has room for', () => {
  it('goes on, and reports later changes', async () => {
    let changes = 0;
    using handle = netns.open();
    using _watch = NetworkWatch.open(handle, () => changes++);
    using dir = tempDir();
    const batch = join(dir.path, 'addresses.batch');
    const addresses = Array.from({ length: 3_000 }, (_, index) => `10.0.${index >> 8}.${index & 255}/16`);
    writeFileSync(batch, addresses.map((address) => `addr add ${address} dev vf0\n`).join(''));
    // Nothing is read meanwhile.
    netns.exec('ip', '-batch', batch);
    await expect.poll(() => changes).toBeGreaterThan(0);
    const before = changes;
    await systemClock.sleep(200);
    netns.exec('ip', 'link', 'set', 'vf0', 'mtu', '1300');
    await expect.poll(() => changes).toBeGreaterThan(before);
  });
});

describe('Follow', () => {
  const networks = new KernelNetworks({ procSysDir: '/proc/sys' });
  afterAll(() => networks[Symbol.dispose]());
  const ends = new NamespaceEnds({ networks, clock: systemClock });
  const follow = (onChange: () => void, onFlapping = () => {}, clock = systemClock) => {
    using namespace = networks.open(netns.path);
    if (namespace === undefined) throw new Error(`there is no namespace at ${netns.path}`);
    return new Follow(namespace, { networks, ends, onChange, onFlapping, clock });
  };

  it('reports a burst of changes once for each quarter of a second, within a second', async () => {
    const seen: number[] = [];
    using _ = follow(() => seen.push(performance.now()));
    const startedAt = performance.now();
    for (let host = 1; host <= 20; host++) netns.exec('ip', 'addr', 'add', `192.0.2.${host}/32`, 'dev', 'vf0');
    const changedAt = performance.now();
    await expect.poll(() => seen.length, { timeout: 2_000 }).toBeGreaterThan(0);
    await systemClock.sleep(600);
    expect(seen.length).toBeLessThanOrEqual(Math.ceil((changedAt - startedAt) / 250) + 1);
    expect(seen.at(-1)! - changedAt).toBeLessThan(1_000);
  });

  it('looks less and less often at a pod that goes on changing, says so once, and is quick again after a rest', async () => {
    const seen: number[] = [];
    let flaps = 0;
    /** Five times as fast. */
    const clock: Clock = {
      nowMs: () => 5 * systemClock.nowMs(),
      deadline: (timeoutMs, parent) => systemClock.deadline(timeoutMs / 5, parent),
      sleep: (ms, signal) => systemClock.sleep(ms / 5, signal),
    };
    using _ = follow(
      () => seen.push(performance.now()),
      () => flaps++,
      clock,
    );
    const script = 'i=0; while :; do i=$((i%250+1)); ip addr flush dev vf0; ip addr add 10.0.0.$i/24 dev vf0; done';
    const hostile = spawn('nsenter', [`--net=${netns.path}`, '--', 'sh', '-c', script], { stdio: 'ignore' });
    await clock.sleep(14_000);
    hostile.kill('SIGKILL');
    // Without growth: four a second, 56.
    expect(seen.length).toBeGreaterThan(5);
    expect(seen.length).toBeLessThanOrEqual(15);
    expect(flaps).toBe(1);
    await clock.sleep(20_000);
    const before = seen.length;
    const changedAt = performance.now();
    netns.exec('ip', 'addr', 'add', '192.0.2.99/32', 'dev', 'vf0');
    await expect.poll(() => seen.length, { timeout: 2_000 }).toBeGreaterThan(before);
    expect(seen.at(-1)! - changedAt).toBeLessThan(1_000);
  });

  it('releases a namespace that the runtime has released, and leaks no descriptor', async () => {
    const before = openDescriptors();
    using _ = follow(() => undefined);
    expect(openDescriptors()).toBeGreaterThan(before);
    netns.unmount();
    await expect.poll(openDescriptors, { timeout: 3_000 }).toBeLessThanOrEqual(before);
  });
});
