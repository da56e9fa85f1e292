import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, vi } from 'vitest';
import { DeviceList, type DeviceListOptions } from '../../../../src/driver/devices/device-list.ts';
import { heldDevices } from '../../../../src/driver/devices/held-devices.ts';
import { PolicyFile } from '../../../../src/driver/devices/policy-file.ts';
import type { StoredClaim, StoredCondition, StoredDevice, UnrestoredVf } from '../../../../src/driver/model/index.ts';
import { systemClock } from '../../../../src/lib/clock.ts';
import { textFiles } from '../../../../src/lib/text-files.ts';
import type { RtnlConnection } from '../../../../src/node/netlink/index.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';
import type { ManualClock } from '../../../doubles/manual-clock.ts';
import { testDriver } from '../../../doubles/objects.ts';
import { storedClaim, storedDevice } from '../../../doubles/stored-claims.ts';
import type { TreeFunction } from '../../node/sriov/pci-tree.ts';
import { TestNode } from '../../node/sriov/test-node.ts';
import { iceTree } from '../../node/sriov/trees/ice.ts';
import { igbTree } from '../../node/sriov/trees/igb.ts';

export const head = 'apiVersion: netdra.dev/v1alpha1\nkind: InventoryPolicy\n';
export const first = '0000:01:10.0';

export let node: TestNode;
export let logger: RecordingLogger;

/** What the store has. */
export let stored: { claims: StoredClaim[]; unrestored: UnrestoredVf[]; conditions: StoredCondition[] };

export const store: DeviceListOptions['store'] = {
  conditions: () => stored.conditions,
  putCondition: (condition) => void stored.conditions.push(condition),
  deleteCondition: () => {},
};

export const options = (more: Partial<DeviceListOptions> = {}): DeviceListOptions => ({
  driver: testDriver,
  host: node.connection as unknown as RtnlConnection,
  clock: systemClock,
  held: () => heldDevices(stored.claims),
  unrestored: () => stored.unrestored,
  store,
  sysfsRoot: node.root,
  logger,
  ...more,
});

export const open = (policyPath?: string, more: Partial<DeviceListOptions> = {}) =>
  new DeviceList(
    options({ ...(policyPath === undefined ? {} : { policy: new PolicyFile(policyPath, textFiles) }), ...more }),
  );

export const scanned = async (...of: Parameters<typeof open>) => {
  const source = open(...of);
  await source.scan();
  return source;
};

/** @returns the path of the policy */
export const writePolicy = (rules: string) => {
  const path = join(node.root, 'policy.yaml');
  writeFileSync(path, `${head}${rules}`);
  return path;
};

export const claimOf = (device: Partial<StoredDevice>): StoredClaim =>
  storedClaim({
    identity: { uid: 'u', namespace: 'default', name: 'c' },
    podUids: ['p'],
    devices: [storedDevice({ pciAddress: first, name: '0000-01-10-0', ...device })],
  });

/** Lets ticks of two seconds go by, with all that comes of them. */
export const tick = async (clock: ManualClock, ticks = 1) => {
  const isAsleep = () => vi.waitFor(() => expect(clock.sleeping()).toEqual([2_000]), { timeout: 5_000, interval: 5 });
  for (let count = 0; count < ticks; count++) {
    await isAsleep();
    clock.advance(2_000);
  }
  await isAsleep();
};

/** Another node in place of the first one. */
export function replaceNode(tree: TreeFunction[]): void {
  node[Symbol.dispose]();
  node = new TestNode(tree);
}

/** Makes a node and an empty store for each test of a file. */
export function useCards(): void {
  beforeEach(() => {
    node = new TestNode([...igbTree, ...iceTree]);
    logger = new RecordingLogger();
    stored = { claims: [], unrestored: [], conditions: [] };
  });
  afterEach(() => node[Symbol.dispose]());
}
