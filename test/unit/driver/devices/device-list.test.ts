import { rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import type { DeviceList } from '../../../../src/driver/devices/device-list.ts';
import { heldDevices } from '../../../../src/driver/devices/held-devices.ts';
import type { StoredDevice } from '../../../../src/driver/model/index.ts';
import { recreateLost } from '../../../../src/driver/recovery/lost-vfs.ts';
import { type Device, SliceError } from '../../../../src/framework/resourceslice/index.ts';
import { validatePool } from '../../../../src/framework/resourceslice/validate.ts';
import type { NetdraError } from '../../../../src/lib/errors.ts';
import type { InventoryPolicy } from '../../../../src/node/inventory/index.ts';
import type { RtnlConnection } from '../../../../src/node/netlink/index.ts';
import { ManualClock } from '../../../doubles/manual-clock.ts';
import { testDriver } from '../../../doubles/objects.ts';
import { storedAttachment } from '../../../doubles/stored-claims.ts';
import { layFunction, type TreeFunction } from '../../node/sriov/pci-tree.ts';
import {
  claimOf,
  first,
  head,
  logger,
  node,
  open,
  replaceNode,
  scanned,
  stored,
  tick,
  useCards,
  writePolicy,
} from './device-list-bench.ts';

useCards();

/** The host, whose scans are counted: between them only the links of cards are listed. */
const countScans = (onScan: () => void) => {
  const links = () => {
    onScan();
    return node.connection.links();
  };
  return { ...node.connection, links, linkTable: () => node.connection.linkTable() } as unknown as RtnlConnection;
};

/** A host that never changes. */
const quiet = () => ({ [Symbol.dispose]: () => {} });

/** What happens to a VF that goes to a pod. */
const takeAway = () => {
  node.takeAway('enp1s0f0v0');
  rmSync(join(node.root, 'bus/pci/devices', first, 'net'), { recursive: true });
};

describe('DeviceList', () => {
  it('offers devices by name and PCI address, and reports changes', async () => {
    const source = open();
    expect(await source.scan()).toBe(true);
    expect(source.offered()).toHaveLength(9);
    expect(source.find('0000-01-10-0')).toMatchObject({ pciAddress: first, pfAddress: '0000:01:00.0', vfIndex: 0 });
    expect(source.attributesOf(first)).toMatchObject({ driver: { string: 'igbvf' } });
    expect(await source.scan()).toBe(false);
    node.change('enp1s0f0v0', { mtuBytes: 9000 });
    expect(await source.scan()).toBe(true);
  });

  it('keeps an allocated device unchanged until its claim ends', async () => {
    const source = await scanned();
    const before = source.offered();
    stored.claims = [claimOf({})];
    takeAway();
    expect(await source.scan()).toBe(false);
    expect(source.offered()).toEqual(before);
  });

  it('reads the device plugin checkpoint once per claim, and withdraws devices of plugins at the next scan', async () => {
    const givenOut = new Map<string, string>();
    let reads = 0;
    const read = async () => {
      reads++;
      return { givenOut };
    };
    const clock = new ManualClock();
    const source = await scanned(undefined, {
      clock,
      devicePlugins: { read } as never,
      watchHost: quiet,
    });
    source.watch(() => {});
    await tick(clock, 4);
    const devices = [{ pciAddress: first }, { pciAddress: '0000:01:10.1' }];
    const scans = reads;
    expect(await source.judgeOthers(devices)).toEqual(new Map());
    expect(reads).toBe(scans + 1);
    givenOut.set(first, 'intel.com/sriov');
    await tick(clock);
    expect(source.find('0000-01-10-0')).toBeDefined();
    const verdict = { reason: 'device-plugin', resourceName: 'intel.com/sriov' };
    expect(await source.judgeOthers(devices)).toEqual(new Map([[first, verdict]]));
    await tick(clock);
    expect(source.find('0000-01-10-0')).toBeUndefined();
    await source[Symbol.asyncDispose]();
  });

  it('reports a device as in use while a program has any unclaimed device of its IOMMU group open', async () => {
    const second = '0000:01:10.1';
    const file = (pciAddress: string, name: string) => join(node.root, 'bus/pci/devices', pciAddress, name);
    for (const each of [first, second]) {
      rmSync(file(each, 'driver'), { force: true });
      symlinkSync('../../drivers/vfio-pci', file(each, 'driver'));
      writeFileSync(file(each, 'enable'), '0\n');
    }
    symlinkSync(file(second, '.'), join(node.root, 'kernel/iommu_groups/10/devices', second));
    const source = await scanned();
    const devices = [{ pciAddress: first }];
    expect(await source.judgeOthers(devices)).toEqual(new Map());
    writeFileSync(file(second, 'enable'), '1\n');
    expect(await source.judgeOthers(devices)).toEqual(new Map([[first, { reason: 'group-open', peer: second }]]));
    stored.claims = [claimOf({ pciAddress: second, name: '0000-01-10-1' })];
    expect(await source.judgeOthers(devices)).toEqual(new Map());
    writeFileSync(file(first, 'enable'), '1\n');
    expect(await source.judgeOthers(devices)).toEqual(new Map([[first, { reason: 'open-elsewhere' }]]));
  });

  it('withdraws a device that another driver offers, and reports whether devices of other drivers are known', async () => {
    const clock = new ManualClock();
    let known: Map<string, string> | undefined;
    const source = await scanned(undefined, { clock, otherDrivers: { offered: () => known }, watchHost: quiet });
    // What becomes known after a scan does not change its result.
    known = new Map();
    expect(source.report.knowsOtherDrivers).toBe(false);
    known = undefined;
    const onChange = vi.fn();
    source.watch(onChange);
    await tick(clock, 4);
    onChange.mockClear();
    for (const [offered, isOurs] of [
      [new Map([[first, 'dra.example']]), false],
      [new Map(), true],
    ] as const) {
      known = offered;
      await tick(clock);
      expect(onChange).toHaveBeenCalled();
      expect([source.report.knowsOtherDrivers, source.find('0000-01-10-0') !== undefined]).toEqual([true, isOurs]);
      onChange.mockClear();
    }
    expect(logger.lines.find(({ message }) => message === 'device not offered')?.fields).toMatchObject({
      reason: 'other-driver',
      driver: 'dra.example',
    });
    await source[Symbol.asyncDispose]();
  });

  it('offers VFs with guaranteed bandwidth as shares of the port, and counts the port once', async () => {
    const path = join(node.root, 'policy.yaml');
    const rule = 'select: { pciAddress: "0000:01:00.0" }, bandwidth: { guaranteedMbps: 400, portMbps: 1000 }';
    writeFileSync(path, `${head}pfs: [{ ${rule} }, { select: {} }]\n`);
    const source = await scanned(path);
    const offered = source.offered();
    const guarantee = { bandwidth: { value: '400M' } };
    expect(offered.find(({ name }) => name === '0000-01-10-0')).toMatchObject({
      capacity: guarantee,
      consumesCounters: [{ counterSet: 'port-0000-01-00-0', counters: guarantee }],
    });
    const sharedCounters = source.sharedCounters();
    expect(sharedCounters).toEqual([{ name: 'port-0000-01-00-0', counters: { bandwidth: { value: '1000M' } } }]);
    expect(validatePool('n', { devices: offered, sharedCounters }, testDriver)).toEqual([]);
    expect(offered.filter(({ capacity }) => capacity === undefined)).not.toEqual([]);
  });

  it('publishes NUMA nodes as lists if enabled, but as single values while the API server drops lists', async () => {
    const clock = new ManualClock();
    const nodeOf = ({ attributes = {} }: Device) => attributes['resource.kubernetes.io/numaNode'];
    const nodes = (source: DeviceList) => [
      ...new Set(source.offered().map((device) => JSON.stringify(nodeOf(device)))),
    ];
    await using plain = open(undefined, { clock });
    await plain.scan();
    // The firmware does not say where the card of the igb is.
    expect(nodes(plain)).toEqual([undefined, '{"int":1}']);

    await using source = open(undefined, { clock, listAttributes: true, nearNodes: (number) => [number, 2] });
    await source.scan();
    expect(nodes(source)).toEqual([undefined, '{"ints":[1,2]}']);
    const device = source.offered().find(nodeOf)!;
    expect(validatePool('x', { devices: [device] }, testDriver)).toEqual([]);
    const { pciAddress = '' } = source.find(device.name) ?? {};
    expect(source.attributesOf(pciAddress)['resource.kubernetes.io/numaNode']).toEqual({ int: 1 });
    source.notPublished(new SliceError('slice-lists-refused', 'x'));
    expect(nodes(source)).toEqual([undefined, '{"int":1}']);
    clock.advance(3_600_000);
    expect(nodes(source)).toEqual([undefined, '{"ints":[1,2]}']);

    const nearNodes = () => {
      throw new Error('EIO');
    };
    await using unread = open(undefined, { clock, listAttributes: true, nearNodes });
    await unread.scan();
    expect(nodes(unread)).toEqual([undefined, '{"ints":[1]}']);
    expect(logger.messages('warn').filter((message) => message.includes('NUMA'))).toEqual([
      'the API server refused NUMA nodes as lists: offering single values, and trying lists again in an hour',
      'cannot read which NUMA nodes share a socket: devices name only their own NUMA node',
    ]);
  });

  const link = { name: 'enp1s0f0v0', hardwareAddress: '52:54:00:10:00:00', mtuBytes: 1500, up: false };
  it.each<[string, Partial<StoredDevice>, string]>([
    ['in a pod', { attachment: storedAttachment({ host: link }) }, 'igbvf'],
    ['with vfio-pci', { before: { driver: 'igbvf', vf: {}, link } }, ''],
  ])('still knows after a restart the attributes of a VF that is %s', async (_, device, driver) => {
    const source = await scanned();
    const before = source.offered();
    takeAway();
    if (driver === '') rmSync(join(node.root, 'bus/pci/devices', first, 'driver'));
    stored.claims = [claimOf({ ...device, offered: source.find('0000-01-10-0')! })];
    const restarted = await scanned();
    expect(restarted.offered()).toEqual(before);
    stored.claims = [];
    await restarted.scan();
    expect(restarted.attributesOf(first)).toMatchObject({ driver: { string: driver } });
  });

  it.each(['mlx5_vfio_pci', 'vfio-pci'])(
    'keeps the attributes of an allocated VF with %s, even after a restart',
    async (driver) => {
      const at = '0000:5e:02.0';
      const pf = { pciAddress: '0000:5e:00.0', driver: 'mlx5_core', interfaces: [{ name: 'ensM' }], totalVfs: 8 };
      const tree = (vf: Partial<TreeFunction>): TreeFunction[] => [{ ...pf, vfs: [{ pciAddress: at, ...vf }] }];
      replaceNode(tree({ driver: 'mlx5_core', rdmaDevices: ['mlx5_3'] }));
      node.vfInfos.ensM = [{ vfIndex: 0, hardwareAddress: '02:00:00:00:00:cc' }];
      const source = await scanned();
      const before = source.offered();
      const offered = source.find('0000-5e-02-0')!;
      const device = { pciAddress: at, name: offered.name, before: { driver: 'mlx5_core', vf: {} }, offered };
      stored.claims = JSON.parse(JSON.stringify([claimOf(device)]));
      // Without an IOMMU, vfio makes a group.
      replaceNode(tree({ driver, iommuGroup: '0' }));
      const restarted = await scanned();
      expect(restarted.offered()).toEqual(before);
      stored.claims = [];
      await restarted.scan();
      expect(restarted.offered()).toMatchObject([
        { attributes: { rdma: { bool: false }, driver: { string: driver } } },
      ]);
    },
  );

  it('offers a VF that is being restored with the attributes that it had before its claim', async () => {
    const offered = (await scanned()).find('0000-01-10-0')!;
    const claim = claimOf({ before: { driver: 'igbvf', vf: {}, link }, offered });
    stored.unrestored = [{ device: claim.devices[0]!, reason: 'the driver was killed between unbind and probe' }];
    takeAway();
    rmSync(join(node.root, 'bus/pci/devices', first, 'driver'));
    const source = await scanned();
    stored.unrestored = [];
    stored.claims = [claim];
    await source.scan();
    const { attributes } = source.offered().find(({ name }) => name === '0000-01-10-0') ?? {};
    expect(attributes).toMatchObject({
      driver: { string: 'igbvf' },
      mac: { string: link.hardwareAddress },
      mtu: { int: 1500 },
    });
  });

  it('offers a VF with its earlier attributes if another driver instance prepares the VF during the first scan', async () => {
    const offered = (await scanned()).find('0000-01-10-0')!;
    let isReserved = false;
    const held = () => {
      if (isReserved) return heldDevices(stored.claims);
      isReserved = true;
      stored.claims = [claimOf({ before: { driver: 'igbvf', vf: {}, link }, offered })];
      takeAway();
      rmSync(join(node.root, 'bus/pci/devices', first, 'driver'));
      return heldDevices([claimOf({ offered })]);
    };
    const source = await scanned(undefined, { held });
    const { attributes } = source.offered().find(({ name }) => name === '0000-01-10-0') ?? {};
    expect(attributes).toMatchObject({ driver: { string: 'igbvf' }, mac: { string: link.hardwareAddress } });
  });

  it('neither offers nor moves back a real VF that another component moved to another namespace', async () => {
    node.takeAway('enp1s0f0v0');
    rmSync(join(node.root, 'bus/pci/devices', first, 'net/enp1s0f0v0'), { recursive: true });
    const source = await scanned();
    expect(source.offered().map(({ name }) => name)).not.toContain('0000-01-10-0');
    expect(logger.lines.find(({ message }) => message === 'device not offered')?.fields).toMatchObject({
      pciAddress: first,
      reason: 'interface-elsewhere',
    });
    // It would have to write into sysfs, where no kernel answers here.
    await recreateLost(source, () => new Map(), new AbortController().signal);
    expect(logger.messages('warn')).toEqual([]);
  });

  it.each([
    ['name', { select: { name: 'ens9' } }],
    ['vfs', { select: {}, vfs: '90-99' }],
    ['vfDriver', { select: {}, vfDriver: 'vfio_pci' }],
  ])(
    'rejects a policy object whose mistaken %s would withdraw all devices, but accepts an explicitly empty policy',
    async (_, rule) => {
      let [policy, name]: [InventoryPolicy, string | undefined] = [{ pfs: [rule] }, 'a'];
      const source = open(undefined, {
        policy: {
          follow: async (onChange) => {
            try {
              onChange(policy, name === undefined ? {} : { name, generation: 1 });
            } catch (error) {
              return error as NetdraError;
            }
            return undefined;
          },
        },
      });
      // A node that offers nothing yet has nothing to lose.
      await source.scan();
      expect(source.offered()).toEqual([]);
      policy = { pfs: [{ select: { driver: 'igb' } }] };
      await source.scan();
      expect(source.offered()).toHaveLength(6);
      policy = { pfs: [rule] };
      await source.scan();
      expect(source.policyFault).toMatchObject({
        code: 'policy-refused',
        message: expect.stringContaining('Policy a: '),
      });
      expect([source.offered().length, source.state.policy]).toEqual([6, { pfs: [{ select: { driver: 'igb' } }] }]);
      policy = { pfs: [] };
      await source.scan();
      expect([source.offered(), source.policyFault]).toEqual([[], undefined]);
      // A file is for many kinds of nodes, and may select nothing on some.
      policy = { pfs: [{ select: {} }] };
      await source.scan();
      [policy, name] = [{ pfs: [rule] }, undefined];
      await source.scan();
      expect([source.offered(), source.policyFault]).toEqual([[], undefined]);
    },
  );

  it('follows the policy file, and keeps the last valid policy while the file is broken', async () => {
    const path = join(node.root, 'policy.yaml');
    const vfsOf = (driver: string) => `${head}pfs: [{ select: { driver: ${driver} }, resourceName: example.com/x }]`;
    writeFileSync(path, vfsOf('igb'));
    const source = await scanned(path);
    expect(source.offered()).toHaveLength(6);
    expect(source.attributesOf(first)['k8s.cni.cncf.io/resourceName']).toEqual({ string: 'example.com/x' });
    writeFileSync(path, 'apiVersion: broken');
    node.change('enp1s0f0v0', { mtuBytes: 9000 });
    // The devices are still looked after.
    expect([await source.scan(), await source.scan()]).toEqual([true, false]);
    expect(source.offered()).toHaveLength(6);
    const rejected = 'inventory policy rejected; the last valid one stays in force';
    expect(logger.messages('error')).toEqual([rejected]);
    expect(source.policyFault).toMatchObject({ code: 'policy-invalid', path });
    expect(logger.lines.find(({ level }) => level === 'error')?.fields.err).toMatchObject({ code: 'policy-invalid' });
    writeFileSync(path, vfsOf('ice'));
    expect(await source.scan()).toBe(true);
    expect(source.offered()).toHaveLength(3);
    expect(source.policyFault).toBeUndefined();
    expect(source.counts().withheld).toEqual({ unrestored: 0, hung: 0, 'not-selected': 6 });
    // The same fault as before is a new one now.
    writeFileSync(path, 'apiVersion: broken');
    await source.scan();
    expect(logger.messages('error')).toEqual([rejected, rejected]);
  });

  it('scans the devices after a change, and otherwise every 30 s', async () => {
    const clock = new ManualClock();
    let watching = 0;
    let report = () => {};
    const watchHost = (onChange: () => void): Disposable => {
      watching++;
      report = onChange;
      return { [Symbol.dispose]: () => void watching-- };
    };
    let scans = 0;
    const host = countScans(() => scans++);
    await using source = open(undefined, { clock, watchHost, host });
    let changes = 0;
    source.watch(() => changes++);
    /** Ticks of two seconds. */
    const pass = (ticks: number) => tick(clock, ticks);
    const scansDuring = async (ticks: number) => {
      const before = scans;
      await pass(ticks);
      return scans - before;
    };
    expect(await scansDuring(4)).toBe(2);
    expect([changes, await scansDuring(4)]).toEqual([1, 0]);
    node.change('enp1s0f0v0', { mtuBytes: 9000 });
    report();
    // A pod that comes or goes causes some forty messages: the first one is enough.
    expect(watching).toBe(0);
    expect([await scansDuring(1), changes, await scansDuring(4)]).toEqual([1, 2, 1]);
    expect(watching).toBe(1);
    stored.claims = [claimOf({})];
    expect(await scansDuring(4)).toBe(2);
    expect(await scansDuring(15)).toBe(1);
    // Pods come and go.
    let isBusy = 0;
    for (let tick = 0; tick < 10; tick++) {
      report();
      isBusy += await scansDuring(1);
    }
    expect([isBusy, await scansDuring(4)]).toEqual([2, 2]);
    // A VF is not offered to the next pod while it is not restored.
    report();
    await pass(1);
    report();
    stored.unrestored = [{ device: claimOf({}).devices[0]!, reason: 'x' }];
    const taints = [{ key: `${testDriver}/unrestored`, effect: 'NoSchedule' }];
    expect([await scansDuring(1), source.offered()[0]]).toEqual([
      1,
      expect.objectContaining({ name: '0000-01-10-0', taints }),
    ]);
  });

  it('limits the number of scans even if each check for changes triggers another change', async () => {
    const clock = new ManualClock();
    const watchHost = (onChange: () => void): Disposable => {
      queueMicrotask(onChange);
      return { [Symbol.dispose]: () => {} };
    };
    let scans = 0;
    const host = countScans(() => scans++);
    await using source = open(undefined, { clock, watchHost, host });
    source.watch(() => undefined);
    await tick(clock, 11);
    expect(scans).toBeLessThanOrEqual(3);
  });

  it('keeps the MAC of a whole NIC in user space, since no PF reports it', async () => {
    const nic = '0000:81:00.0';
    layFunction(node.root, { pciAddress: nic, driver: 'igb', interfaces: [{ name: 'ensN' }] });
    node.addLink(80, 'ensN', { parentDevice: nic, hardwareAddress: '00:1b:21:00:00:01' });
    const path = writePolicy('nics: [{ select: { name: ensN } }]');
    const source = await scanned(path);
    expect(source.find('0000-81-00-0')).toMatchObject({ kind: 'nic', pciAddress: nic });
    stored.claims = [claimOf({ pciAddress: nic, name: '0000-81-00-0', before: { driver: 'igb', vf: {} } })];
    node.takeAway('ensN');
    await source.scan();
    expect(await source.vfs.adminInfo({ pciAddress: nic })).toEqual({ hardwareAddress: '00:1b:21:00:00:01' });
  });

  it('logs once which devices are not offered, and why', async () => {
    node.addLink(90, 'br0', { kind: 'bridge' });
    node.change('enp1s0f0v0', { master: 90 });
    const source = await scanned();
    await source.scan();
    expect(logger.lines).toEqual([
      {
        level: 'info',
        message: 'device not offered',
        fields: { pciAddress: first, pfAddress: '0000:01:00.0', reason: 'enslaved', interfaceName: 'enp1s0f0v0' },
      },
    ]);
  });
});
