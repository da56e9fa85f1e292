import { mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import {
  deviceAttributes,
  explainExclusion,
  type HeldDevices,
  type Inventory,
  type InventoryPolicy,
} from '../../../../src/node/inventory/index.ts';
import { type Link, NetlinkError } from '../../../../src/node/netlink/index.ts';
import { defaultRoute } from '../sriov/test-node.ts';
import { a0, a1, addresses, b0, file, node, pfA, pfB, plain, useTwoCards } from './two-cards.ts';

useTwoCards();

describe('Inventory of VFs', () => {
  it('does not offer a VF whose interface is in another network namespace until it returns', async () => {
    const inventory = node.inventory();
    await inventory.scan();
    const links = node.links;
    node.takeAway('ensAv0');
    // The directory stays, and has no entry that is visible on the host.
    rmSync(file(a0, 'net/ensAv0'), { recursive: true });
    // Whether a claim has it may have changed during the first scan.
    expect(addresses(await inventory.scan())).toContain(a0);
    const { devices, excluded } = await inventory.scan();
    expect(devices.map(({ pciAddress }) => pciAddress)).toEqual([a1, b0]);
    expect(excluded).toEqual([{ pciAddress: a0, pfAddress: pfA, reason: 'interface-elsewhere' }]);
    expect(addresses(await inventory.scan(new Map([[a0, {}]])))).toContain(a0);
    node.links = links;
    expect(addresses(await inventory.scan())).toContain(a0);
  });

  it('withdraws an unclaimed VF while a program has it open through vfio', async () => {
    const inventory = node.inventory();
    rmSync(file(a0, 'driver'));
    symlinkSync('../../../bus/pci/drivers/vfio-pci', file(a0, 'driver'));
    rmSync(file(a0, 'net'), { recursive: true });
    writeFileSync(file(a0, 'enable'), '0\n');
    // As from drivers of the kernel, which enable what they are bound to.
    writeFileSync(file(a1, 'enable'), '1\n');
    expect(addresses(await inventory.scan())).toEqual([a0, a1, b0]);
    writeFileSync(file(a0, 'enable'), '1\n');
    // A claim may have taken it during the scan.
    expect(addresses(await inventory.scan())).toEqual([a0, a1, b0]);
    const { devices, excluded } = await inventory.scan();
    expect(devices.map(({ pciAddress }) => pciAddress)).toEqual([a1, b0]);
    expect(excluded).toEqual([{ pciAddress: a0, pfAddress: pfA, reason: 'open-elsewhere' }]);
    expect(addresses(await inventory.scan(new Map([[a0, {}]])))).toContain(a0);
    writeFileSync(file(a0, 'enable'), '0\n');
    expect(addresses(await inventory.scan())).toContain(a0);
  });

  it('withdraws a VF while a program has another unclaimed function of its IOMMU group open', async () => {
    const inventory = node.inventory();
    for (const [index, address] of [a0, a1].entries()) {
      rmSync(file(address, 'driver'));
      symlinkSync('../../../bus/pci/drivers/vfio-pci', file(address, 'driver'));
      rmSync(file(address, 'net'), { recursive: true });
      writeFileSync(file(address, 'enable'), `${index}\n`);
      symlinkSync('../../../kernel/iommu_groups/7', file(address, 'iommu_group'));
    }
    const group = join(node.root, 'kernel/iommu_groups/7/devices');
    mkdirSync(group, { recursive: true });
    for (const address of [a0, a1]) symlinkSync(file(address, '.'), join(group, address));
    await inventory.scan();
    const { devices, excluded } = await inventory.scan();
    expect(devices.map(({ pciAddress }) => pciAddress)).toEqual([b0]);
    expect(excluded).toContainEqual({ pciAddress: a0, pfAddress: pfA, reason: 'group-open', peer: a1 });
    expect(addresses(await inventory.scan(new Map([[a1, {}]])))).toContain(a0);
  });

  it('offers a VF that has no interface in any network namespace', async () => {
    node.takeAway('ensAv0');
    rmSync(file(a0, 'net'), { recursive: true });
    expect(addresses(await node.inventory().scan())).toContain(a0);
  });

  it('never offers a VF that carries a default route', async () => {
    node.routes = [defaultRoute(node.indexOf('ensAv0'))];
    const report = await node.inventory().scan();
    expect(addresses(report)).toEqual([a1, b0]);
    expect(report.excluded).toEqual([
      { pciAddress: a0, pfAddress: pfA, reason: 'carries-default-route', interfaceName: 'ensAv0' },
    ]);
  });

  it('does not offer a VF that has an address of the node or carries a VLAN interface', async () => {
    const rest = { tentative: false, dadFailed: false };
    node.addresses = [
      { index: node.indexOf('ensAv0'), cidr: '10.40.0.1/24', scope: 'global', ...rest },
      // Every interface that is up has one.
      { index: node.indexOf('ensBv0'), cidr: 'fe80::1/64', scope: 'link', ...rest },
      // What VFs are for: the node's own address is on the PF.
      { index: node.indexOf('ensA'), cidr: '10.41.0.1/24', scope: 'global', ...rest },
    ];
    node.addLink(20, 'ensAv1.50', { kind: 'vlan', lower: node.indexOf('ensAv1') });
    const { devices, excluded } = await node.inventory().scan();
    expect(devices.map(({ pciAddress }) => pciAddress)).toEqual([b0]);
    expect(excluded.map(({ pciAddress, reason, interfaceName }) => [pciAddress, reason, interfaceName])).toEqual([
      [a0, 'has-address', 'ensAv0'],
      [a1, 'has-upper', 'ensAv1'],
    ]);
    expect(addresses(await node.inventory().scan(new Map([[a0, {}]])))).toContain(a0);
  });

  it('traces default routes through bonds, VLANs and several next hops to VFs', async () => {
    node.addLink(20, 'bond0', { kind: 'bond' });
    node.addLink(21, 'bond0.7', { kind: 'vlan', lower: 20 });
    node.change('ensAv1', { master: 20 });
    node.routes = [defaultRoute(21, node.indexOf('ensBv0'))];
    const { excluded } = await node.inventory().scan();
    expect(excluded.map(({ pciAddress, reason }) => [pciAddress, reason])).toEqual([
      [a1, 'carries-default-route'],
      [b0, 'carries-default-route'],
    ]);
  });

  it('keeps links with the same index in different namespaces apart', async () => {
    node.addLink(20, 'macvlan0', { kind: 'macvlan', lower: node.indexOf('ensAv0'), lowerNetnsId: 0 });
    node.routes = [defaultRoute(20)];
    expect(await node.offered()).toEqual([a0, a1, b0]);
  });

  it('finishes a scan although links are stacked in a cycle', async () => {
    node.addLink(20, 'x', { lower: 21 });
    node.addLink(21, 'y', { lower: 20, master: 20 });
    node.routes = [defaultRoute(20)];
    expect(await node.offered()).toEqual([a0, a1, b0]);
  });

  it.each([
    ['a bridge', { name: 'br0', kind: 'bridge' }],
    ['a bond', { name: 'bond0', kind: 'bond' }],
    // Open vSwitch shows as this one link, whichever of its bridges the port is in.
    ['Open vSwitch', { name: 'ovs-system', kind: 'openvswitch' }],
    ['a VRF', { name: 'red', kind: 'vrf' }],
  ])('does not offer a VF that is a port of %s', async (_, { name, kind }) => {
    node.addLink(20, name, { kind });
    node.change('ensAv0', { master: 20 });
    expect((await node.inventory().scan()).excluded).toEqual([
      { pciAddress: a0, pfAddress: pfA, reason: 'enslaved', interfaceName: 'ensAv0' },
    ]);
  });

  it('offers VFs of a card in use by the node only if the policy allows it', async () => {
    node.routes = [defaultRoute(node.indexOf('ensA'))];
    const { excluded } = await node.inventory().scan();
    expect(excluded.map(({ pciAddress, reason, interfaceName }) => [pciAddress, reason, interfaceName])).toEqual([
      [a0, 'pf-carries-default-route', 'ensA'],
      [a1, 'pf-carries-default-route', 'ensA'],
    ]);
    expect(await node.offered({ pfs: [{ select: {}, allowInUse: true }] })).toEqual([a0, a1, b0]);
    node.routes.push(defaultRoute(node.indexOf('ensAv0')));
    expect(await node.offered({ pfs: [{ select: {}, allowInUse: true }] })).toEqual([a1, b0]);
  });

  it('finds links by name on kernels that do not report their bus address', async () => {
    node.links = node.links.map(({ parentDevice: _, ...rest }) => rest);
    node.routes = [defaultRoute(node.indexOf('ensAv0'))];
    const { devices } = await node.inventory().scan();
    expect(devices.map((device) => [device.pciAddress, device.kind === 'vf' && device.pfName])).toEqual([
      [a1, 'ensA'],
      [b0, 'ensB'],
    ]);
  });

  it('keeps address, MTU and speed while they are temporarily unreadable', async () => {
    const watched = node.inventory();
    const before = await watched.scan();
    node.takeAway('ensAv0');
    rmSync(file(a0, 'net'), { recursive: true });
    writeFileSync(file(pfA, 'net/ensA/speed'), '-1\n');
    const after = (await watched.scan()).devices.map(({ interfaceName: _, ...rest }) => rest);
    expect(after).toEqual(before.devices.map(({ interfaceName: _, ...rest }) => rest));
  });

  it('asks the PF for a MAC only if a VF has no interface', async () => {
    await node.inventory().scan();
    expect(node.vfInfoRequests).toBe(0);
    node.takeAway('ensAv0');
    rmSync(file(a0, 'net'), { recursive: true });
    node.vfInfos.ensA = [{ vfIndex: 1 }, { vfIndex: 0, hardwareAddress: '02:00:00:00:00:cc' }];
    const watched = node.inventory();
    expect((await watched.scan()).devices.map(({ hardwareAddress }) => hardwareAddress)).toEqual([
      '02:00:00:00:00:cc',
      '02:00:00:00:00:04',
      '02:00:00:00:00:06',
    ]);
    expect(node.vfInfoRequests).toBe(1);
    node.vfInfos.ensA = [{ vfIndex: 0, hardwareAddress: '02:00:00:00:00:dd' }];
    expect((await watched.scan()).devices[0]?.hardwareAddress).toBe('02:00:00:00:00:dd');
    // What a claim has is known from before.
    await watched.scan(new Map([[a0, {}]]));
    expect(node.vfInfoRequests).toBe(2);
  });
});

describe('Inventory of a VF whose driver is rebound repeatedly', () => {
  const name = 'ensAv0';
  const scanWith = async (inventory: Inventory, more: Partial<Link>) => {
    node.change(name, more);
    const { devices } = await inventory.scan();
    const { mac, mtu } = deviceAttributes(devices.find(({ pciAddress }) => pciAddress === a0)!);
    return `${Object.values(mac!)} ${Object.values(mtu!)}`;
  };
  const address = (index: number) => `22:61:bd:0b:8a:${index.toString(16).padStart(2, '0')}`;

  it('reports a single change at once, but omits a MAC that changes repeatedly until it is stable', async () => {
    const inventory = node.inventory();
    const first = await scanWith(inventory, {});
    const seen: string[] = [];
    for (let n = 0; n < 20; n++) seen.push(await scanWith(inventory, { hardwareAddress: address(n), mtuBytes: 1_500 }));
    expect([...new Set(seen)]).toEqual([`${address(0)} 1500`, ' 1500']);
    expect(seen[0]).not.toBe(first);
    const after: string[] = [];
    for (let n = 0; n < 22; n++) after.push(await scanWith(inventory, {}));
    expect([after[0], after.at(-1)]).toEqual([' 1500', `${address(19)} 1500`]);
    expect(await scanWith(inventory, { mtuBytes: 9_000 })).toBe(`${address(19)} 9000`);
  });

  it('still omits the MAC after a claim held the VF, or its interface was missing', async () => {
    const inventory = node.inventory();
    for (const n of [0, 1, 2]) await scanWith(inventory, { hardwareAddress: address(n) });
    await inventory.scan(new Map([[a0, {}]]));
    const { links } = node;
    node.takeAway(name);
    expect(await scanWith(inventory, {})).toMatch(/^ /);
    node.links = links;
    expect(await scanWith(inventory, { hardwareAddress: address(3) })).toMatch(/^ /);
  });
});

it('Inventory of an InfiniBand PF reports no MACs of VFs, because IPoIB knows only a part of them', async () => {
  const hardwareAddress = '00:00:10:29:fe:80:00:00:00:00:00:00:24:8a:07:03:00:a4:65:9a';
  node.change('ensA', { hardwareAddress });
  writeFileSync(file(pfA, 'net/ensA/type'), '32\n');
  node.takeAway('ensAv0');
  rmSync(file(a0, 'net'), { recursive: true });
  node.vfInfos.ensA = [0, 1].map((vfIndex) => ({ vfIndex, hardwareAddress: hardwareAddress.slice(0, 17) }));
  const [vf] = (await node.inventory().scan()).devices;
  expect(vf).toMatchObject({ pciAddress: a0, linkType: 'infiniband' });
  expect(vf?.hardwareAddress).toBeUndefined();
});

describe('Inventory of a PF with other links on its function', () => {
  it.each(['pf0hpf', 'c1pf0', 'c1pf0vf1', 'pf0sf3', 'pf0', 'p0pf0vf0'])(
    'does not mistake the representor %s for the port, and ignores its use by the node',
    async (portName) => {
      const representor = { parentDevice: pfA, portName, master: 90, hardwareAddress: '02:00:00:00:00:77' };
      node.change('ensA', { portName: 'p0' });
      node.addLink(90, 'ovs-system', { kind: 'openvswitch' });
      node.addLink(1, 'rep', representor);
      node.links.unshift(node.links.pop()!);
      const { devices, excluded } = await node.inventory({ pfs: [{ select: { name: 'ensA' } }] }).scan();
      expect(devices).toMatchObject(
        [a0, a1].map((pciAddress) => ({ pciAddress, pfName: 'ensA', eswitchMode: 'switchdev' })),
      );
      expect(excluded).toMatchObject([{ pciAddress: b0, reason: 'not-selected' }]);
    },
  );

  it('reads the carrier of a representor between scans while the interface of its VF is up', async () => {
    node.change('ensA', { portName: 'p0' });
    node.addLink(92, 'ensA_0', { parentDevice: pfA, portName: 'pf0vf0', carrier: false });
    const inventory = node.inventory();
    await inventory.scan();
    const lacking = async (held: HeldDevices = new Map()) =>
      (await inventory.readConditions(held)).flatMap((each) => (each.isPresent ? each.interfaceName : []));
    expect(await lacking()).toEqual(['ensA_0']);
    node.change('ensAv0', { up: false });
    expect(await lacking()).toEqual([]);
    // It is set up after it was moved into the pod.
    node.takeAway('ensAv0');
    const held = new Map([[a0, { isInPod: true as const }]]);
    expect(await lacking(held)).toEqual([]);
    expect(await lacking(held)).toEqual(['ensA_0']);
    expect(await lacking()).toEqual([]);
  });

  it('lists PFs and offered devices as functions that can have conditions, whatever the policy', async () => {
    let policy: InventoryPolicy = { pfs: [{ select: { name: 'ensA' } }] };
    const inventory = node.inventory(() => policy);
    expect((await inventory.scan()).subjects).toEqual(new Set([pfA, pfB, a0, a1]));
    policy = { pfs: [] };
    expect((await inventory.scan()).subjects).toEqual(new Set([pfA, pfB]));
  });

  it('checks all ports of a card that has several ports on one function', async () => {
    node.change('ensA', { portName: 'p0' });
    node.addLink(90, 'bond0', { kind: 'bond' });
    node.addLink(91, 'ensA1', { parentDevice: pfA, portName: 'p1', master: 90 });
    const { excluded } = await node.inventory().scan();
    expect(excluded.map(({ pciAddress, reason, interfaceName }) => [pciAddress, reason, interfaceName])).toEqual([
      [a0, 'pf-enslaved', 'ensA1'],
      [a1, 'pf-enslaved', 'ensA1'],
    ]);
  });
});

describe('Inventory of a PF whose VFs cannot be listed', () => {
  const errors = {
    EMSGSIZE: new NetlinkError('netlink-refused', 'message too long (EMSGSIZE)', { errno: 'EMSGSIZE' }),
    ENOBUFS: new NetlinkError('netlink-refused', 'no buffer space (ENOBUFS)', { errno: 'ENOBUFS', retriable: true }),
    'time-out': new NetlinkError('netlink-lost', 'no answer within 10000 ms', { retriable: true }),
    malformed: new NetlinkError('netlink-malformed', 'the answer cannot be read'),
  };
  beforeEach(() => {
    node.takeAway('ensAv0');
    rmSync(file(a0, 'net'), { recursive: true });
  });

  it.each(Object.entries(errors))('offers its VFs without the MACs set by the PF: %s', async (_, error) => {
    node.vfInfoErrors.ensA = error;
    const { devices, excluded, problems } = await node.inventory().scan();
    expect(devices.map(({ pciAddress, hardwareAddress }) => [pciAddress, hardwareAddress])).toEqual([
      [a0, undefined],
      [a1, '02:00:00:00:00:04'],
      [b0, '02:00:00:00:00:06'],
    ]);
    expect(excluded).toEqual([]);
    expect(problems).toEqual([
      expect.objectContaining({
        code: 'vf-state-unknown',
        device: pfA,
        cause: error,
        hint: expect.any(String),
        message: `cannot list the VFs of PF ensA (${pfA}): they are offered without the MACs that it has set`,
      }),
    ]);
  });

  it('keeps the MACs that it could read before the listing failed', async () => {
    const watched = node.inventory();
    node.vfInfos.ensA = [{ vfIndex: 0, hardwareAddress: '02:00:00:00:00:cc' }];
    const before = await watched.scan();
    node.vfInfoErrors.ensA = errors.EMSGSIZE;
    const after = await watched.scan();
    expect([after.devices, after.problems.length]).toEqual([before.devices, 1]);
  });
});

describe('Inventory with a policy', () => {
  it("gives VFs their share of the port's bandwidth, and offers no VF whose guarantee would fail", async () => {
    const policy = (bandwidth: object): InventoryPolicy => ({
      pfs: [
        { select: { name: 'ensA' }, vfs: '0', bandwidth: { guaranteedMbps: 30_000, ...bandwidth } },
        { select: {} },
      ],
    });
    let inForce = policy({});
    const inventory = node.inventory(() => inForce);
    const ofFirst = async () => {
      const { devices, excluded } = await inventory.scan();
      const [device] = devices.filter(({ pciAddress }) => pciAddress === a0);
      return [
        device?.kind === 'vf' ? device.bandwidth : undefined,
        excluded.map(({ reason, bandwidth }) => [reason, bandwidth]),
      ];
    };
    expect(await ofFirst()).toEqual([{ guaranteedMbps: 30_000, portMbps: 40_000 }, []]);
    inForce = policy({ portMbps: 100_000 });
    expect(await ofFirst()).toEqual([{ guaranteedMbps: 30_000, portMbps: 100_000 }, []]);
    inForce = policy({ guaranteedMbps: 40_001 });
    const above = { guaranteedMbps: 40_001, portMbps: 40_000 };
    expect(await ofFirst()).toEqual([undefined, [['guarantee-above-port', above]]]);
    writeFileSync(file(pfA, 'net/ensA/speed'), '-1\n');
    inForce = policy({});
    expect(await ofFirst()).toEqual([{ guaranteedMbps: 30_000, portMbps: 40_000 }, []]);
    const fresh = node.inventory(policy({}));
    expect((await fresh.scan()).excluded).toMatchObject([{ pciAddress: a0, reason: 'port-speed-unknown' }]);
  });

  it('does not offer a VF whose guarantee needs minimum rates that its driver lacks', async () => {
    const burst: InventoryPolicy = {
      pfs: [{ select: {} }, { select: {}, bandwidth: { guaranteedMbps: 10, burst: true } }].reverse(),
    };
    const { devices, excluded } = await node.inventory(burst).scan();
    expect(devices).toMatchObject([{ pciAddress: b0, bandwidth: { guaranteedMbps: 10, burst: true } }]);
    expect(excluded.map(({ pciAddress }) => pciAddress)).toEqual([a0, a1]);
    expect(explainExclusion(excluded[0]!)).toBe(
      'its card rejects the rates of its guaranteed bandwidth; change the rule of the policy: pfs[0].bandwidth.burst',
    );
  });

  it.each<[string, InventoryPolicy['pfs'], string[]]>([
    ['interface name', [{ select: { name: 'ensB' } }], [b0]],
    ['PCI address', [{ select: { pciAddress: pfA } }], [a0, a1]],
    ['vendor', [{ select: { vendor: '15b3' } }], []],
    ['device', [{ select: { device: '1592' } }], [b0]],
    ['driver', [{ select: { driver: 'i40e' } }], [a0, a1]],
    ['link type', [{ select: { linkType: 'infiniband' } }], []],
    ['one of several values', [{ select: { name: ['ensX', 'ensB'] } }], [b0]],
    ['all given criteria', [{ select: { name: 'ensA', pciAddress: pfB } }], []],
    ['VF range', [{ select: { pciAddress: pfA }, vfs: '1-6' }], [a1]],
    ['VF number', [{ select: {}, vfs: '5,0' }], [a0, b0]],
    ['driver of the VF', [{ select: {}, vfDriver: 'vfio-pci' }], []],
    ['one of the drivers of the VF', [{ select: {}, vfDriver: ['vfio-pci', 'iavf'] }], [a0, a1, b0]],
    ['no rule', [], []],
  ])('selects VFs by %s', async (_, pfs, expected) => {
    expect(await node.offered({ pfs })).toEqual(expected);
    const { excluded } = await node.inventory({ pfs }).scan();
    expect(excluded.map(({ reason }) => reason)).toEqual(Array(3 - expected.length).fill('not-selected'));
  });

  it.each(['ensA', 'ens1f0', 'enp59s0f0', 'ensA1', 'ens1f1'])(
    'selects a PF by any name of any of its ports: %s',
    async (name) => {
      node.change('ensA', { altNames: ['ens1f0', 'enp59s0f0'] });
      node.addLink(91, 'ensA1', { parentDevice: pfA, portName: 'p1', altNames: ['ens1f1'] });
      node.addLink(92, 'ensA_0', { parentDevice: pfA, portName: 'pf0vf0', altNames: ['rep0'] });
      const report = await node.inventory({ pfs: [{ select: { name } }] }).scan();
      expect([addresses(report), report.warnings]).toEqual([[a0, a1], []]);
      expect(await node.offered({ pfs: [{ select: { name: 'rep0' } }] })).toEqual([]);
    },
  );

  it('warns about rules that match nothing, unless the scan met unreadable devices', async () => {
    node.change('ensA', { altNames: ['ens1f0'] });
    const policy: InventoryPolicy = {
      pfs: [{ select: { name: 'ens9' } }, { select: {} }, { select: { name: 'ensB', driver: 'i40e' } }],
      nics: [{ select: { name: 'ensP' } }, { select: { driver: 'igb' } }, { select: { vendor: '15b3' } }],
    };
    const has = `this node has ensA/ens1f0 (${pfA}), ensB (${pfB}), ensP (${plain})`;
    expect((await node.inventory(policy).scan()).warnings).toEqual([
      `pfs[0] of the inventory policy selects nothing: {"name":"ens9"}; ${has}`,
      `pfs[2] of the inventory policy selects nothing: {"name":"ensB","driver":"i40e"}; ${has}`,
      `nics[2] of the inventory policy selects nothing: {"vendor":"15b3"}; ${has}`,
    ]);
    writeFileSync(file(pfB, 'vendor'), 'garbage');
    expect((await node.inventory(policy).scan()).warnings).toEqual([]);
  });

  it('applies the first matching rule, so that VFs of one PF can belong to several resources', async () => {
    const policy: InventoryPolicy = {
      resourceName: 'example.com/rest',
      pfs: [
        { select: { name: 'ensA' }, vfs: '0', resourceName: 'example.com/dpdk' },
        { select: { name: 'ensA' }, resourceName: 'example.com/kernel' },
        { select: {} },
      ],
    };
    const { devices } = await node.inventory(policy).scan();
    expect(devices.map(({ resourceName }) => resourceName)).toEqual([
      'example.com/dpdk',
      'example.com/kernel',
      'example.com/rest',
    ]);
  });

  it('keeps offering an allocated device unchanged, even if the policy excludes it and its interface changes', async () => {
    let policy: InventoryPolicy = {};
    const watched = node.inventory(() => policy);
    const [before] = (await watched.scan()).devices;
    policy = { pfs: [] };
    node.change('ensAv0', { name: 'net1', mtuBytes: 1400, master: 20, hardwareAddress: '02:00:00:00:00:ff' });
    const held = {
      driver: 'iavf',
      interfaceName: 'ensAv0',
      hardwareAddress: '02:00:00:00:00:03',
      mtuBytes: 1500,
    };
    const report = await watched.scan(new Map([[a0, held]]));
    expect(report.devices).toEqual([before]);
    expect(report.excluded).toHaveLength(2);
  });
});

describe('Inventory on read errors', () => {
  it.each([
    ['other cards', pfA, 'vendor', 'malformed', [b0]],
    ['other VFs of the card', a0, 'device', 'malformed', [a1, b0]],
    ['other cards if the kind of a function is unreadable', pfA, 'class', 'unreadable', [b0]],
  ])('still offers %s', async (_, pciAddress, name, problem, offered) => {
    const path = file(pciAddress, name);
    rmSync(path);
    if (problem === 'malformed') writeFileSync(path, 'garbage');
    else mkdirSync(path);
    const report = await node.inventory().scan();
    expect(addresses(report)).toEqual(offered);
    expect(report.problems).toMatchObject([{ code: `sysfs-${problem}`, path }]);
  });

  it('does not report a VF that is removed during the scan', async () => {
    rmSync(file(a0, 'vendor'));
    const report = await node.inventory().scan();
    expect(addresses(report)).toEqual([a1, b0]);
    expect(report.problems).toEqual([]);
  });
});
