import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { NetworkWatch } from '../../src/node/netlink/index.ts';

const ip = (...args: string[]) => execFileSync('ip', args);

let watch: NetworkWatch;
let changes = 0;
beforeEach(() => {
  changes = 0;
  ip('link', 'add', 'watched0', 'type', 'veth', 'peer', 'name', 'watched1');
  watch = NetworkWatch.openHost(() => changes++);
});
afterEach(() => {
  watch[Symbol.dispose]();
  ip('link', 'delete', 'watched0');
});

const settled = () => new Promise((resolve) => setTimeout(resolve, 100));
/** How many changes are reported of what a task does. */
async function changesDuring(task: () => unknown): Promise<number> {
  await settled();
  const before = changes;
  task();
  await settled();
  return changes - before;
}

it('NetworkWatch of the host reports changes of links, addresses and devices, and is silent without changes', async () => {
  expect(await changesDuring(() => undefined)).toBe(0);
  expect(await changesDuring(() => ip('link', 'set', 'watched0', 'mtu', '1400'))).toBeGreaterThan(0);
  expect(await changesDuring(() => ip('address', 'add', '192.0.2.7/24', 'dev', 'watched0'))).toBeGreaterThan(0);
  // Sends a device's event once more. Source: Linux Documentation/ABI/testing/sysfs-uevent.
  expect(await changesDuring(() => writeFileSync('/sys/class/net/watched0/uevent', 'change'))).toBe(1);
});
