import { readdirSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { DeviceList } from '../../../src/driver/devices/device-list.ts';
import { reportDevices } from '../../../src/driver/devices/device-report.ts';
import { PolicyFile } from '../../../src/driver/devices/policy-file.ts';
import { Store } from '../../../src/driver/state/index.ts';
import { type KubeClient, ResourceApi } from '../../../src/framework/kube/index.ts';
import {
  createSliceApi,
  type Device,
  type ResourceSlice,
  SlicePublisher,
} from '../../../src/framework/resourceslice/index.ts';
import { systemClock } from '../../../src/lib/clock.ts';
import { explain } from '../../../src/lib/errors.ts';
import { textFiles } from '../../../src/lib/text-files.ts';
import type { RtnlConnection } from '../../../src/node/netlink/index.ts';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { ManualClock } from '../../../test/doubles/manual-clock.ts';
import { testDriver } from '../../../test/doubles/objects.ts';
import { TestNode } from '../../../test/unit/node/sriov/test-node.ts';
import { isSince, readPrograms } from '../programs.ts';
import type { ApiCluster } from './api-cluster.ts';

const nodeName = 'many-devices';
/** Before that, counters are in the slices of the devices, behind a feature gate. */
const hasCounters = isSince(readPrograms(process.env).kubernetesVersion, '1.36');
const policy = `apiVersion: netdra.dev/v1alpha1
kind: InventoryPolicy
pfs: [{ select: {}, bandwidth: { guaranteedMbps: 400 } }]
`;
const [pfs, vfsPerPf, devicesPerSlice] = [8, 64, 64];
const pfAt = (index: number) => `0000:1${index}:00.0`;
const vfAt = (pf: number, index: number) => `0000:1${pf}:0${2 + Math.floor(index / 8)}.${index % 8}`;

/** A node with VFs in user space, so that none needs an interface. */
const openNode = () =>
  new TestNode(
    Array.from({ length: pfs }, (_, pf) => ({
      pciAddress: pfAt(pf),
      driver: 'ice',
      interfaces: [{ name: `ens${pf}`, speed: '100000' }],
      totalVfs: vfsPerPf,
      vfs: Array.from({ length: vfsPerPf }, (_, index) => ({ pciAddress: vfAt(pf, index), driver: 'vfio-pci' })),
    })),
  );

/** Devices in the stored slices of a node. */
async function storedDevices({ admin }: ApiCluster, node: string): Promise<Device[]> {
  const { items } = await admin.resources.list<ResourceSlice>({ path: 'resourceslices' });
  return items.filter(({ spec }) => spec.nodeName === node).flatMap(({ spec }) => spec.devices ?? []);
}

/** The VFs of a PF vanish while it is reset, and come back. */
function hideVfs(root: string, pf: number, isHidden: boolean): void {
  const dir = join(root, 'devices', `pci0000:1${pf}`, pfAt(pf));
  const [from, to] = isHidden ? ['virtfn', 'hidden'] : ['hidden', 'virtfn'];
  for (const name of readdirSync(dir)) {
    if (name.startsWith(from)) renameSync(join(dir, name), join(dir, name.replace(from, to)));
  }
}

const none = () => undefined;
/** What else gets the report of the devices. */
const unheard = {
  kubelet: { setHealth: none },
  observer: { published: none, reported: none },
  events: {
    cardsUnhealthy: none,
    devicesFound: none,
    devicesHung: none,
    devicesUnrestored: none,
    policyRejected: none,
  },
};

/** The same client, and how often it has written. */
function countWrites(client: KubeClient) {
  let writes = 0;
  const counting: KubeClient = Object.create(client, {
    request: {
      value: (request: Parameters<KubeClient['request']>[0]) => {
        if (request.method !== 'GET') writes += 1;
        return client.request(request);
      },
    },
  });
  return { client: counting, writes: () => writes };
}

/** The node, with a driver's device list and publisher of its slices, both in a time of their own. */
async function openDriver(cluster: ApiCluster) {
  await using stack = new AsyncDisposableStack();
  const node = stack.use(openNode());
  const clock = new ManualClock();
  const { client, writes } = countWrites((await cluster.driverOn(nodeName)).client);
  let counted = 0;
  const errors: Error[] = [];
  let synced = Promise.withResolvers<void>();
  const sliceApi = createSliceApi(client, new ResourceApi(client), { driver: testDriver, nodeName });
  const publisher = stack.use(
    new SlicePublisher(sliceApi, {
      driver: testDriver,
      nodeName,
      clock: systemClock,
      logger: new RecordingLogger(),
      random: () => 0,
      onError: (error) => errors.push(error),
      onSynced: () => synced.resolve(),
    }),
  );
  const store = stack.use(new Store(join(node.root, 'state.db')));
  const policyPath = join(node.root, 'policy.yaml');
  writeFileSync(policyPath, policy);
  const host = node.connection as unknown as RtnlConnection;
  const open = () =>
    new DeviceList({
      driver: testDriver,
      host,
      clock,
      store,
      sysfsRoot: node.root,
      now: () => new Date(Date.UTC(2026, 0, 1) + clock.nowMs()),
      logger: new RecordingLogger(),
      held: () => new Map(),
      unrestored: () => [],
      ...(hasCounters ? { policy: new PolicyFile(policyPath, textFiles) } : {}),
    });
  let devices = open();
  let stored: number[] = [];
  const owned = stack.move();
  return {
    node,
    errors,
    devices: () => devices,
    restart: () => {
      devices = open();
    },
    /** Writes so far, and those that were seen. */
    counts: () => [writes(), counted],
    setCarrier: (pf: number, carrier: boolean) => node.change(`ens${pf}`, { carrier }),
    /** What the driver does when it has looked at its devices. @returns writes since the last look, and devices with a taint */
    look: async (afterMs = 0) => {
      clock.advance(afterMs);
      await devices.scan();
      synced = Promise.withResolvers();
      reportDevices({ node: nodeName, devices, store, publisher, ...unheard });
      await synced.promise;
      const countOf = (all: Device[]) => [all.length, all.filter(({ taints }) => taints !== undefined).length];
      const [wanted = 0, tainted = 0] = countOf(devices.offered());
      const before = counted;
      counted = writes();
      // No other process writes them, and it takes a while to read 512 devices.
      if (counted > before) stored = countOf(await storedDevices(cluster, nodeName));
      expect(stored).toEqual([wanted, tainted]);
      return [counted - before, tainted];
    },
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

export function describeManyDevices(get: () => ApiCluster): void {
  it('a driver with 512 VFs writes only ResourceSlices that changed, and none after a restart', async () => {
    await using driver = await openDriver(get());
    const { node, look, setCarrier } = driver;
    // One has the counters of all ports.
    const slices = (pfs * vfsPerPf) / devicesPerSlice + (hasCounters ? 1 : 0);

    expect(await look(), 'at the start').toEqual([slices, 0]);
    const [device] = driver.devices().offered();
    expect(device?.consumesCounters === undefined).toBe(!hasCounters);
    for (let round = 0; round < 3; round++) expect(await look(30_000), 'nothing changed').toEqual([0, 0]);
    setCarrier(3, false);
    expect(await look(2_000), 'a PF loses its carrier').toEqual([1, vfsPerPf]);
    driver.restart();
    expect(await look(2_000), 'a restart').toEqual([0, vfsPerPf]);
    setCarrier(3, true);
    expect(await look(2_000), 'the link is back').toEqual([0, vfsPerPf]);
    expect(await look(10_000), 'and stays').toEqual([1, 0]);

    let flapping = 0;
    for (let second = 0; second < 120; second += 3) {
      setCarrier(3, second % 6 !== 0);
      flapping += (await look(3_000))[0] ?? 0;
    }
    expect(flapping, 'a link that flaps for two minutes').toBe(1);
    setCarrier(3, true);
    await look(2_000);
    expect(await look(640_000), 'and stays').toEqual([1, 0]);

    hideVfs(node.root, 5, true);
    // Each slice has the number of slices.
    expect(await look(2_000), 'the VFs of a PF vanish').toEqual([slices, 0]);
    hideVfs(node.root, 5, false);
    expect(await look(2_000), 'and are back').toEqual([slices, 0]);

    setCarrier(1, false);
    setCarrier(2, false);
    expect(await look(2_000), 'a switch with two PFs fails').toEqual([2, 2 * vfsPerPf]);
    // Slices that do not come back as they were written would be written again.
    await systemClock.sleep(1_000);
    const [writes, counted] = driver.counts();
    expect([writes, driver.errors]).toEqual([counted, []]);
  }, 60_000);
}

/** @param get a cluster without the gate DRAListTypeAttributes */
export function describeRefusedLists(get: () => ApiCluster): void {
  it('NUMA nodes are published as single values, with a warning, if the API server stores no list attributes', async () => {
    const cluster = get();
    using node = openNode();
    const place = { driver: testDriver, nodeName: 'without-lists' };
    const { client } = await cluster.driverOn(place.nodeName);
    using store = new Store(join(node.root, 'lists.db'));
    const parts = { ...place, clock: systemClock, logger: new RecordingLogger() };
    const devices = new DeviceList({
      ...parts,
      host: node.connection as unknown as RtnlConnection,
      store,
      sysfsRoot: node.root,
      held: () => new Map(),
      unrestored: () => [],
      listAttributes: true,
    });
    const errors: string[] = [];
    await using publisher = new SlicePublisher(createSliceApi(client, new ResourceApi(client), place), {
      ...parts,
      onError: (error) => {
        errors.push(explain(error));
        devices.notPublished(error);
        publish();
      },
    });
    const publish = () => publisher.publish({ pools: { [place.nodeName]: { devices: devices.offered() } } });
    await devices.scan();
    publish();
    const nodes = async () =>
      (await storedDevices(cluster, place.nodeName)).map(
        ({ attributes = {} }) => attributes['resource.kubernetes.io/numaNode'],
      );
    await expect.poll(nodes, { timeout: 60_000 }).toEqual(Array(pfs * vfsPerPf).fill({ int: 0 }));
    expect(errors).toEqual([
      expect.stringMatching(
        /^pool without-lists: the API server refuses lists as values of the attributes .*numaNode.*DRAListTypeAttributes/s,
      ),
    ]);
  });
}
