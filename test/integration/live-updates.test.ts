import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Follow } from '../../src/driver/sandbox/follow.ts';
import { NamespaceEnds } from '../../src/driver/sandbox/namespace-ends.ts';
import { systemClock } from '../../src/lib/clock.ts';
import { KernelNetworks, NetworkWatch } from '../../src/node/netlink/index.ts';
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
    ['a new address', ['addr', 'add', '192.0.2.1/24', 'dev', 'vf0']],
    ['a new IPv6 address', ['addr', 'add', '2001:db8::1/64', 'dev', 'vf0']],
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

  it('ignores other namespaces, and reports nothing after it was closed', async () => {
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

it('NetworkWatch still reports changes after its socket buffer has overflowed', async () => {
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

describe('Follow, which watches the network of a pod', () => {
  const networks = new KernelNetworks({ procSysDir: '/proc/sys' });
  afterAll(() => networks[Symbol.dispose]());
  const ends = new NamespaceEnds({ networks, clock: systemClock });
  const follow = (onChange: () => void) => {
    using namespace = networks.open(netns.path);
    if (namespace === undefined) throw new Error(`there is no namespace at ${netns.path}`);
    return new Follow(namespace, { networks, ends, onChange, clock: systemClock });
  };

  it('reports a change that the kernel announces', async () => {
    let changes = 0;
    using _ = follow(() => changes++);
    netns.exec('ip', 'addr', 'add', '192.0.2.1/32', 'dev', 'vf0');
    await expect.poll(() => changes).toBe(1);
  });

  it('closes its descriptors of a network namespace that the runtime has released', async () => {
    const before = openDescriptors();
    using _ = follow(() => undefined);
    expect(openDescriptors()).toBeGreaterThan(before);
    netns.unmount();
    await expect.poll(openDescriptors).toBeLessThanOrEqual(before);
  });
});
