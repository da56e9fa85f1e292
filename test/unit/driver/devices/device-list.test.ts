import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { silencedPfs } from '../../../../src/driver/devices/device-conditions.ts';
import { DeviceList, type DeviceListOptions } from '../../../../src/driver/devices/device-list.ts';
import { heldDevices } from '../../../../src/driver/devices/held-devices.ts';
import { openDevices } from '../../../../src/driver/devices/open-devices.ts';
import type { PolicySource } from '../../../../src/driver/devices/policy-file.ts';
import type { StoredClaim, StoredCondition, StoredDevice, UnrestoredVf } from '../../../../src/driver/state/index.ts';
import { type Device, SliceError } from '../../../../src/framework/resourceslice/index.ts';
import { validatePool } from '../../../../src/framework/resourceslice/validate.ts';
import { systemClock } from '../../../../src/lib/clock.ts';
import { NetdraError } from '../../../../src/lib/errors.ts';
import type { InventoryPolicy } from '../../../../src/node/inventory/index.ts';
import { NetlinkError, type RtnlConnection } from '../../../../src/node/netlink/index.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';
import { ManualClock } from '../../../doubles/manual-clock.ts';
import { testDriver } from '../../../doubles/objects.ts';
import { fullPipe } from '../../node/sriov/full-pipe.ts';
import { layFunction, type TreeFunction } from '../../node/sriov/pci-tree.ts';
import { TestNode } from '../../node/sriov/test-node.ts';
import { iceTree } from '../../node/sriov/trees/ice.ts';
import { igbTree } from '../../node/sriov/trees/igb.ts';

const head = 'apiVersion: netdra.dev/v1alpha1\nkind: InventoryPolicy\n';
const first = '0000:01:10.0';

let node: TestNode;
let logger: RecordingLogger;
let claims: StoredClaim[];
let unrestored: UnrestoredVf[];
/** What is stored of conditions, in the order in which it was. */
let conditions: StoredCondition[];
beforeEach(() => {
  node = new TestNode([...igbTree, ...iceTree]);
  logger = new RecordingLogger();
  claims = [];
  unrestored = [];
  conditions = [];
});
afterEach(() => node[Symbol.dispose]());

const store: DeviceListOptions['store'] = {
  conditions: () => conditions,
  putCondition: (condition) => void conditions.push(condition),
  deleteCondition: () => {},
};
/** What the publisher says if the API server stores no taints. */
const dropped = new SliceError('slice-fields-dropped', 'x', { problems: [{ field: 'taints[0]', message: 'x' }] });
const options = (more: Partial<DeviceListOptions> = {}): DeviceListOptions => ({
  driver: testDriver,
  host: node.connection as unknown as RtnlConnection,
  clock: systemClock,
  held: () => heldDevices(claims),
  unrestored: () => unrestored,
  store,
  sysfsRoot: node.root,
  logger,
  ...more,
});
const open = (policyPath?: string, more: Partial<DeviceListOptions> = {}) =>
  new DeviceList(options({ ...(policyPath === undefined ? {} : { policyPath }), ...more }));
const scanned = async (...of: Parameters<typeof open>) => {
  const source = open(...of);
  await source.scan();
  return source;
};
/** @returns the path of the policy */
const writePolicy = (rules: string) => {
  const path = join(node.root, 'policy.yaml');
  writeFileSync(path, `${head}${rules}`);
  return path;
};
const openReal = (more: Partial<DeviceListOptions> = {}) =>
  openDevices(
    { nodeName: 'node-1', simulatePrefix: 'nsim' },
    {
      ...options(more),
      host: (more.host ?? node.connection) as unknown as RtnlConnection,
      stateDir: node.root,
    },
  );
const claimOf = (device: Partial<StoredDevice>): StoredClaim => ({
  identity: { uid: 'u', namespace: 'default', name: 'c' },
  podUids: ['p'],
  state: 'prepared',
  devices: [{ pciAddress: first, pool: 'n', name: '0000-01-10-0', request: 'vf', config: {}, ...device }],
});
/** Lets ticks of two seconds go by, with all that comes of them. */
const tick = async (clock: ManualClock, ticks = 1) => {
  const isAsleep = () => vi.waitFor(() => expect(clock.sleeping()).toEqual([2_000]), { timeout: 5_000, interval: 5 });
  for (let count = 0; count < ticks; count++) {
    await isAsleep();
    clock.advance(2_000);
  }
  await isAsleep();
};
/** The host, whose scans are counted: between them only the links of cards are listed. */
const countScans = (onScan: () => void) => {
  const links = () => {
    onScan();
    return node.connection.links();
  };
  return { ...node.connection, links, linkTable: () => node.connection.linkTable() } as unknown as RtnlConnection;
};
/** What happens to a VF that goes to a pod. */
const takeAway = () => {
  node.takeAway('enp1s0f0v0');
  rmSync(join(node.root, 'bus/pci/devices', first, 'net'), { recursive: true });
};

describe('DeviceList', () => {
  it('offers what it finds, by name and PCI address, and says when that changed', async () => {
    const source = open();
    expect(await source.scan()).toBe(true);
    expect(source.offered()).toHaveLength(9);
    expect(source.find('0000-01-10-0')).toMatchObject({ pciAddress: first, pfAddress: '0000:01:00.0', vfIndex: 0 });
    expect(source.attributesOf(first)).toMatchObject({ driver: { string: 'igbvf' } });
    expect(await source.scan()).toBe(false);
    node.change('enp1s0f0v0', { mtuBytes: 9000 });
    expect(await source.scan()).toBe(true);
  });

  it('keeps what a claim has as it was, as long as the claim has it', async () => {
    const source = await scanned();
    const before = source.offered();
    claims = [claimOf({})];
    takeAway();
    expect(await source.scan()).toBe(false);
    expect(source.offered()).toEqual(before);
  });

  it('offers VFs with guarantees with what they take of their port, and the port once', async () => {
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

  it('offers NUMA nodes as lists if that is wanted, but single ones for an hour if the API server stores no lists', async () => {
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
      'NUMA nodes are offered as single values for an hour',
      'the NUMA nodes of a socket cannot be read: a node is offered by itself',
    ]);
  });

  const link = { name: 'enp1s0f0v0', hardwareAddress: '52:54:00:10:00:00', mtuBytes: 1500, up: false };
  it.each<[string, Partial<StoredDevice>, string]>([
    ['in a pod', { attachment: { podUid: 'p', sandboxId: 's', netnsPath: '/n', host: link } }, 'igbvf'],
    ['with vfio-pci', { before: { driver: 'igbvf', vf: {}, link } }, ''],
  ])('knows after a restart what a VF was that is %s, until its claim ends', async (_, stored, driver) => {
    const source = await scanned();
    const before = source.offered();
    takeAway();
    if (driver === '') rmSync(join(node.root, 'bus/pci/devices', first, 'driver'));
    claims = [claimOf(stored)];
    const restarted = await scanned();
    expect(restarted.offered()).toEqual(before);
    claims = [];
    await restarted.scan();
    expect(restarted.attributesOf(first)).toMatchObject({ driver: { string: driver } });
  });

  it.each(['mlx5_vfio_pci', 'vfio-pci'])(
    'offers a VF that a claim has with %s as before, also after a restart: RDMA, IOMMU group, MAC of the PF',
    async (driver) => {
      const at = '0000:5e:02.0';
      const pf = { pciAddress: '0000:5e:00.0', driver: 'mlx5_core', interfaces: [{ name: 'ensM' }], totalVfs: 8 };
      const tree = (vf: Partial<TreeFunction>): TreeFunction[] => [{ ...pf, vfs: [{ pciAddress: at, ...vf }] }];
      node[Symbol.dispose]();
      node = new TestNode(tree({ driver: 'mlx5_core', rdmaDevices: ['mlx5_3'] }));
      node.vfInfos.ensM = [{ vfIndex: 0, hardwareAddress: '02:00:00:00:00:cc' }];
      const source = await scanned();
      const before = source.offered();
      const offered = source.find('0000-5e-02-0')!;
      const stored = { pciAddress: at, name: offered.name, before: { driver: 'mlx5_core', vf: {} }, offered };
      claims = JSON.parse(JSON.stringify([claimOf(stored)]));
      node[Symbol.dispose]();
      // Without an IOMMU, vfio makes a group.
      node = new TestNode(tree({ driver, iommuGroup: '0' }));
      const restarted = await scanned();
      expect(restarted.offered()).toEqual(before);
      claims = [];
      await restarted.scan();
      expect(restarted.offered()).toMatchObject([
        { attributes: { rdma: { bool: false }, driver: { string: driver } } },
      ]);
    },
  );

  const earlier = {
    driver: 'igbvf',
    vf: {},
    link: { name: 'enp1s0f0v0', hardwareAddress: '02:00:00:00:00:01', mtuBytes: 1500, up: false },
  };

  it('knows a VF that is being restored as it was before its claim, since the next claim may have it at once', async () => {
    const [device] = claimOf({ before: earlier }).devices;
    unrestored = [{ device: device!, reason: 'the driver was killed between unbind and probe' }];
    takeAway();
    rmSync(join(node.root, 'bus/pci/devices', first, 'driver'));
    const source = await scanned();
    unrestored = [];
    claims = [claimOf({})];
    await source.scan();
    const { attributes } = source.offered().find(({ name }) => name === '0000-01-10-0') ?? {};
    expect(attributes).toMatchObject({
      driver: { string: 'igbvf' },
      mac: { string: '02:00:00:00:00:01' },
      mtu: { int: 1500 },
    });
  });

  it('sees a VF that another instance prepares during the first scan as it was before its claim', async () => {
    let isReserved = false;
    const held = () => {
      if (isReserved) return heldDevices(claims);
      isReserved = true;
      claims = [claimOf({ before: earlier })];
      takeAway();
      rmSync(join(node.root, 'bus/pci/devices', first, 'driver'));
      return heldDevices([claimOf({})]);
    };
    const source = await scanned(undefined, { held });
    const { attributes } = source.offered().find(({ name }) => name === '0000-01-10-0') ?? {};
    expect(attributes).toMatchObject({ driver: { string: 'igbvf' }, mac: { string: '02:00:00:00:00:01' } });
  });

  it('neither offers nor takes back a real VF that another component has moved away', async () => {
    node.takeAway('enp1s0f0v0');
    rmSync(join(node.root, 'bus/pci/devices', first, 'net/enp1s0f0v0'), { recursive: true });
    const source = await scanned();
    expect(source.offered().map(({ name }) => name)).not.toContain('0000-01-10-0');
    expect(logger.lines.find(({ message }) => message === 'device not offered')?.fields).toMatchObject({
      pciAddress: first,
      reason: 'interface-elsewhere',
    });
    // It would have to write into sysfs, where no kernel answers here.
    await source.recreateLost(new AbortController().signal);
    expect(logger.messages('warn')).toEqual([]);
  });

  it.each([
    ['name', { select: { name: 'ens9' } }],
    ['vfs', { select: {}, vfs: '90-99' }],
    ['vfDriver', { select: {}, vfDriver: 'vfio_pci' }],
  ])(
    'refuses an object that would withdraw all devices by a mistake in %s, but not one that says so',
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

  it('follows the policy file, and goes on with the last good one while it is broken', async () => {
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

  it('reads the devices again when something changed, and else every 30 s', async () => {
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
    claims = [claimOf({})];
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
    unrestored = [{ device: claimOf({}).devices[0]!, reason: 'x' }];
    const taints = [{ key: `${testDriver}/unrestored`, effect: 'NoSchedule' }];
    expect([await scansDuring(1), source.offered()[0]]).toEqual([
      1,
      expect.objectContaining({ name: '0000-01-10-0', taints }),
    ]);
  });

  it('scans a busy node no more often if a change arrives while it decides whether to scan', async () => {
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

  it('knows the MAC of a whole NIC in user space, which no PF could tell', async () => {
    const nic = '0000:81:00.0';
    layFunction(node.root, { pciAddress: nic, driver: 'igb', interfaces: [{ name: 'ensN' }] });
    node.addLink(80, 'ensN', { parentDevice: nic, hardwareAddress: '00:1b:21:00:00:01' });
    const path = writePolicy('nics: [{ select: { name: ensN } }]');
    const source = await scanned(path);
    expect(source.find('0000-81-00-0')).toMatchObject({ kind: 'nic', pciAddress: nic });
    claims = [claimOf({ pciAddress: nic, name: '0000-81-00-0', before: { driver: 'igb', vf: {} } })];
    node.takeAway('ensN');
    await source.scan();
    expect(await source.vfs.adminInfo({ pciAddress: nic })).toEqual({ hardwareAddress: '00:1b:21:00:00:01' });
  });

  it('says once what is not offered, and why', async () => {
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

describe('DeviceList, of a node that offers nothing', () => {
  it('says once why, and which rules of the policy select nothing', async () => {
    const path = writePolicy('pfs: [{ select: { name: ens9 } }]');
    const source = await scanned(path);
    await source.scan();
    expect(logger.messages('warn')).toEqual([
      expect.stringContaining(
        'pfs[0] of the inventory policy selects nothing: {"name":"ens9"}; this node has enp1s0f0',
      ),
      'no device is offered',
    ]);
    expect(logger.lines.at(-1)?.fields).toEqual({
      reason:
        'devices that are excluded, each with its reason: 9; rules of the inventory policy that select nothing: 1',
    });
  });
});

describe('DeviceList, of a card whose VFs cannot be listed', () => {
  // The VF of iceTree that is bound to vfio-pci, so that its PF is asked for its MAC.
  const pf = 'ens785f0np0';

  it('starts, offers the devices of all cards, and logs the problem once', async () => {
    const all = (await openReal()).offered().map(({ name }) => name);
    const error = new NetlinkError('netlink-refused', 'message too long (EMSGSIZE)', { errno: 'EMSGSIZE' });
    node.vfInfoErrors[pf] = error;
    logger = new RecordingLogger();
    await using source = await openReal();
    expect(source.offered().map(({ name }) => name)).toEqual(all);
    await source.scan();
    expect(logger.lines).toEqual([
      {
        ...{ level: 'warn', message: 'problem with a device' },
        fields: { err: expect.objectContaining({ code: 'vf-state-unknown', device: '0000:17:00.0', cause: error }) },
      },
    ]);
  });

  it.each([
    ['the card', '0000:01:00.0', 'sriov_totalvfs'],
    ['the VF', first, 'vendor'],
  ])('keeps what a claim has, and nothing else, while %s cannot be read', async (_, pciAddress, file) => {
    const source = await scanned();
    const names = () => source.offered().map(({ name }) => name);
    expect(names()).toContain('0000-01-10-0');
    claims = [claimOf({})];
    const dir = join(node.root, 'bus/pci/devices', pciAddress);
    const before = readFileSync(join(dir, file), 'utf8');
    writeFileSync(join(dir, file), '');
    // What is fixed is read again when the driver is another one.
    rmSync(join(dir, 'driver'));
    await source.scan();
    expect(names()).toContain('0000-01-10-0');
    claims = [];
    await source.scan();
    expect(names()).not.toContain('0000-01-10-0');
    writeFileSync(join(dir, file), before);
    await source.scan();
    expect(names()).toContain('0000-01-10-0');
  });

  it('is not scanned more often because of a problem that stays', async () => {
    const clock = new ManualClock();
    node.vfInfoErrors[pf] = new NetlinkError('netlink-refused', 'message too long (EMSGSIZE)', { errno: 'EMSGSIZE' });
    await using source = open(undefined, { clock, watchHost: () => ({ [Symbol.dispose]: () => {} }) });
    source.watch(() => undefined);
    await tick(clock, 14);
    expect(node.vfInfoRequests).toBeLessThanOrEqual(4);
    const before = node.vfInfoRequests;
    await tick(clock, 15);
    expect(node.vfInfoRequests).toBeGreaterThan(before);
  });
});

describe('DeviceList, on a node whose devices cannot be listed', () => {
  const lost = new NetlinkError('netlink-lost', 'cannot list links: no answer within 10000 ms', { retriable: true });
  const unlisted = { code: 'devices-unlisted', retriable: true, cause: lost, hint: expect.any(String) };
  let links: RtnlConnection['links'];
  beforeEach(() => {
    links = async () => Promise.reject(lost);
  });
  const start = async (more: Partial<DeviceListOptions> = {}) => {
    const host = { ...node.connection, links: () => links() } as unknown as RtnlConnection;
    return await openReal({ host, ...more });
  };

  it('starts, so that claims can be served and unprepared, and lists them when it can', async () => {
    const clock = new ManualClock();
    await using source = await start({ clock });
    expect(source.isListed).toBe(false);
    expect(logger.lines).toEqual([{ level: 'error', message: 'devices cannot be listed', fields: { err: lost } }]);
    let changes = 0;
    source.watch(() => changes++);
    await tick(clock, 3);
    expect([changes, source.isListed, logger.lines.length]).toEqual([0, false, 1]);
    links = async () => node.connection.links();
    await tick(clock);
    expect([changes, source.isListed]).toEqual([1, true]);
    expect(source.offered()).toHaveLength(9);
    // Each outage is logged.
    links = async () => Promise.reject(lost);
    node.change('enp1s0f0v0', { mtuBytes: 9000 });
    await tick(clock);
    expect(source.offered()).toHaveLength(9);
    expect(logger.messages('error').concat(logger.messages('warn'))).toEqual(Array(2).fill('devices cannot be listed'));
  });

  it('reports its first list also if there is no device, since slices of an earlier run may exist', async () => {
    using empty = new TestNode([]);
    const clock = new ManualClock();
    const host = { ...empty.connection, links: () => links() } as unknown as RtnlConnection;
    await using source = await start({ clock, host, sysfsRoot: empty.root });
    let changes = 0;
    source.watch(() => changes++);
    links = async () => [];
    await vi.waitFor(() => expect(clock.sleeping()).toEqual([2_000]), { timeout: 5_000, interval: 5 });
    clock.advance(2_000);
    await vi.waitFor(() => expect(changes).toBe(1), 5_000);
  });

  it('does not take a device for gone: claims are prepared and described again when the devices are listed', async () => {
    const source = await start();
    expect(() => source.findUsable('0000-01-10-0')).toThrow(expect.objectContaining(unlisted));
    expect(() => source.attributesOf(first)).toThrow(expect.objectContaining(unlisted));
    await expect(source.vfs.adminInfo({ pciAddress: first })).rejects.toMatchObject(unlisted);
    // What is not a fact of a device is there.
    expect(source.vfs.linkKey(first)).toEqual({ pciAddress: first });
    links = async () => node.connection.links();
    await source.scan();
    expect(source.findUsable('0000-01-10-0')).toMatchObject({ pciAddress: first });
    expect(source.attributesOf(first)).toMatchObject({ kind: { string: 'vf' } });
    expect(source.attributesOf('0000:ff:00.0')).toEqual({});
  });

  it('starts without devices while no policy is known, and lists them when one is', async () => {
    let policy: InventoryPolicy | undefined;
    const unread = new NetdraError('policy-unread', 'not known yet', { retriable: true });
    const follow: PolicySource['follow'] = async (onChange) => {
      if (policy === undefined) throw unread;
      onChange(policy, { name: 'a', generation: 1 });
      return undefined;
    };
    const source = await start({ policy: { follow } });
    expect([source.isListed, source.failure, source.policyFault]).toEqual([false, unread, undefined]);
    policy = {};
    links = async () => node.connection.links();
    await source.scan();
    expect([source.isListed, source.state.policyOrigin]).toEqual([true, { name: 'a', generation: 1 }]);
  });

  it('does not start with an invalid policy, nor with a defect of its own', async () => {
    const path = join(node.root, 'policy.yaml');
    writeFileSync(path, 'apiVersion: broken');
    await expect(start({ policyPath: path })).rejects.toMatchObject({ code: 'policy-invalid', path });
    links = async () => Promise.reject(new TypeError('x is not a function'));
    await expect(start()).rejects.toThrow(TypeError);
  });
});

describe('DeviceList, while the kernel does not return from a write', () => {
  const name = '0000-01-10-0';
  const taints = [{ key: `${testDriver}/hung`, effect: 'NoSchedule' }];
  const offeredAs = (source: DeviceList) => source.offered().find((device) => device.name === name);

  /** A source with a VF whose driver is being bound. */
  async function hang() {
    await using stack = new AsyncDisposableStack();
    rmSync(join(node.root, 'bus/pci/devices', first, 'driver'));
    writeFileSync(join(node.root, 'bus/pci/devices', first, 'driver_override'), '');
    const pipe = stack.use(await fullPipe(join(node.root, 'bus/pci/drivers_probe')));
    let skippedMs = 0;
    const clock = Object.assign(Object.create(systemClock), { nowMs: () => systemClock.nowMs() + skippedMs });
    const source = stack.use(open(undefined, { clock, kernelWrites: { timeoutMs: 500, end: () => undefined } }));
    await source.scan();
    const before = source.offered();
    let changes = 0;
    source.watch(() => changes++);
    await expect(source.vfs.recreate(first)).rejects.toMatchObject({ code: 'device-hangs' });
    const owned = stack.move();
    return {
      ...{ source, before, path: pipe.path, changes: () => changes },
      skip(ms: number) {
        skippedMs += ms;
      },
      async release() {
        pipe.drain();
        await expect.poll(() => source.hung(), { timeout: 10_000 }).toEqual([]);
      },
      [Symbol.asyncDispose]: () => owned.disposeAsync(),
    };
  }

  it('goes on offering the device, with a taint, until the kernel returns', async () => {
    await using bench = await hang();
    const { source, before } = bench;
    expect(source.hung()).toEqual([{ device: first, path: bench.path, text: first }]);
    expect(source.counts().withheld).toEqual({ unrestored: 0, hung: 1 });
    expect(offeredAs(source)).toEqual({ ...before.find((device) => device.name === name), taints });
    expect(source.offered().filter((device) => device.taints !== undefined)).toHaveLength(1);
    expect(source.offered()).toHaveLength(before.length);
    // Published at once, not after the next scan.
    const changes = bench.changes();
    expect(changes).toBeGreaterThan(0);
    await bench.release();
    expect(bench.changes()).toBeGreaterThan(changes);
    expect(source.offered()).toEqual(before);
  });

  it('goes on offering the device when sysfs shows it no longer, and when it is to be restored', async () => {
    await using bench = await hang();
    const { source } = bench;
    unrestored = [{ device: claimOf({}).devices[0]!, reason: 'the kernel has not returned' }];
    rmSync(join(node.root, 'bus/pci/devices', first), { recursive: true });
    await source.scan();
    expect(offeredAs(source)?.taints).toEqual(taints);
    await bench.release();
    expect(offeredAs(source)?.taints).toMatchObject([{ key: `${testDriver}/unrestored` }]);
    await source.scan();
    expect(offeredAs(source)).toBeUndefined();
  });

  it('gives the device to no claim, whatever it tolerates', async () => {
    await using bench = await hang();
    const { source } = bench;
    expect(() => source.findUsable(name)).toThrow(`${first}: the kernel has not returned from an earlier write to`);
    expect(source.findUsable('0000-01-10-2')).toBeDefined();
    await bench.release();
    expect(source.findUsable(name)).toMatchObject({ pciAddress: first });
  });

  it('withdraws the device where the API server stores no taints, unless a claim has it', async () => {
    await using bench = await hang();
    const { source, before } = bench;
    const changes = bench.changes();
    source.notPublished(dropped);
    expect(bench.changes()).toBeGreaterThan(changes);
    expect(source.offered()).toEqual(before.filter((device) => device.name !== name));
    claims = [claimOf({})];
    await source.scan();
    expect(source.offered()).toEqual(before);
    // The API server may have been upgraded meanwhile.
    bench.skip(3_600_000);
    claims = [];
    await source.scan();
    expect(offeredAs(source)?.taints).toEqual(taints);
  });
});

describe('DeviceList, of a card whose link is lost', () => {
  const taint = { key: `${testDriver}/no-carrier`, effect: 'NoSchedule', timeAdded: '2026-01-01T00:00:00Z' };
  const tainted = (source: DeviceList) => source.offered().filter(({ taints }) => taints !== undefined);
  /** A list that is followed on a quiet node that reports changes. */
  async function follow(policy = '') {
    await using stack = new AsyncDisposableStack();
    const clock = new ManualClock();
    let report = () => {};
    const watchHost = (onChange: () => void): Disposable => {
      report = onChange;
      return { [Symbol.dispose]: () => {} };
    };
    const path = writePolicy(policy);
    const now = () => new Date(Date.UTC(2026, 0, 1) + clock.nowMs());
    const source = stack.use(open(path, { clock, watchHost, now }));
    let [changes, scans] = [0, 0];
    await source.start();
    source.watch(
      () => changes++,
      () => scans++,
    );
    const owned = stack.move();
    return {
      source,
      pass: (ticks = 1) => tick(clock, ticks),
      change(more: object) {
        node.change('enp1s0f0', more);
        report();
      },
      count: () => [changes, scans],
      [Symbol.asyncDispose]: () => owned.disposeAsync(),
    };
  }

  it('gives its VFs a taint at the next tick, also while it is not scanned, and takes it back ten seconds after the link is back', async () => {
    await using bench = await follow();
    const { source, pass, change, count } = bench;
    await pass(3);
    const before = source.offered();
    const [changes = 0, scans] = count();
    change({ carrier: false });
    await pass();
    // A scan is due after ten seconds only.
    expect(count()).toEqual([changes + 1, scans]);
    expect(tainted(source)).toHaveLength(3);
    expect(tainted(source)[0]).toMatchObject({
      name: '0000-01-10-0',
      taints: [{ ...taint, timeAdded: '2026-01-01T00:00:08Z' }],
    });
    expect(source.counts().withheld).toEqual({ unrestored: 0, hung: 0, 'no-carrier': 3 });
    expect(source.counts().inCondition).toMatchObject({ 'no-carrier': 3, hung: 0, unrestored: 0 });
    const [pf] = source.counts().pfs;
    const vfs = { offered: 3, used: 0, withheld: 3, hung: 0 };
    expect(pf).toEqual({ pf: 'enp1s0f0', pciAddress: '0000:01:00.0', hasCarrier: false, vfs });
    expect(source.findUsable('0000-01-10-0')).toBeDefined();
    change({ carrier: true });
    await pass(5);
    expect(tainted(source)).toHaveLength(3);
    await pass(2);
    expect(source.offered()).toEqual(before);
    expect(source.counts().pfs[0]).toEqual({ ...pf, hasCarrier: true, vfs: { ...vfs, withheld: 0 } });
    expect(count()[0]).toBe(changes + 2);
  });

  it('follows the policy: another effect, or none besides health and events', async () => {
    node.change('enp1s0f0', { carrier: false });
    await using evicting = await follow('taints: { noCarrier: NoExecute }');
    expect(tainted(evicting.source)[0]?.taints).toEqual([{ ...taint, effect: 'NoExecute' }]);
    conditions = [];
    await using silent = await follow('taints: { noCarrier: None }');
    const { source } = silent;
    expect(tainted(source)).toEqual([]);
    expect(source.counts().withheld).toEqual({ unrestored: 0, hung: 0 });
    const message = expect.stringMatching(/^PF enp1s0f0 \(0000:01:00.0\) has no carrier: check its cable/);
    expect(source.unhealthy().get('0000-01-10-0')).toMatchObject([{ name: 'no-carrier', message }]);
    expect(source.cardConditions()[0]?.message).toMatch(/New claims get its devices all the same/);
    source.notPublished(dropped);
    expect(source.offered()).toHaveLength(9);
  });

  it('withdraws VFs that no claim has where the API server stores no taints', async () => {
    node.change('enp1s0f0', { carrier: false });
    await using bench = await follow();
    const { source } = bench;
    claims = [claimOf({})];
    source.notPublished(dropped);
    expect(
      source
        .offered()
        .map(({ name }) => name)
        .filter((name) => /^0000-01-10-[024]$/.test(name)),
    ).toEqual(['0000-01-10-0']);
    expect(tainted(source)).toEqual([]);
    expect(source.cardConditions()[0]?.message).toMatch(/Its devices are not offered until that is over\.$/);
  });

  it('notices the loss of an LACP partner, which the kernel does not report', async () => {
    node.change('enp1s0f0', { lacpPartnerInSync: true });
    await using bench = await follow('health: { lacpRelay: true }');
    const { source } = bench;
    await bench.pass(3);
    expect(silencedPfs(source.state)).toEqual(new Set());
    node.change('enp1s0f0', { lacpPartnerInSync: false });
    await bench.pass();
    expect(tainted(source)[0]?.taints).toMatchObject([{ key: `${testDriver}/lacp-partner-lost` }]);
    expect(silencedPfs(source.state)).toEqual(new Set(['0000:01:00.0']));
    expect(source.cardConditions()[0]?.message).toMatch(
      /VFs of claims with link state auto have no link until then\.$/,
    );
    await using other = await follow();
    expect(silencedPfs(other.source.state)).toEqual(new Set());
  });
});
