import { rmSync } from 'node:fs';
import { beforeEach, describe, expect, it } from 'vitest';
import { explain } from '../../../../src/lib/errors.ts';
import type { InventoryPolicy } from '../../../../src/node/inventory/index.ts';
import type { NicRule } from '../../../../src/node/inventory/inventory-policy.ts';
import { NetlinkError } from '../../../../src/node/netlink/index.ts';
import { ManualClock } from '../../../doubles/manual-clock.ts';
import { layFunction, type TreeFunction } from '../sriov/pci-tree.ts';
import { defaultRoute } from '../sriov/test-node.ts';
import { a0, a1, addresses, b0, file, node, pfA, plain, useTwoCards } from './two-cards.ts';

useTwoCards();

describe('Inventory enabling VFs', () => {
  const pfC = '0000:af:00.0';
  const madeVfs = [0, 1, 2, 3].map((index) => `0000:af:02.${index}`);
  const numbers = () => node.written;
  const policy: InventoryPolicy = {
    pfs: [
      { select: {}, vfs: '0-1' },
      { select: {}, numVfs: 4 },
    ],
  };
  const four: InventoryPolicy = { pfs: [{ select: { name: 'ensC' }, numVfs: 4 }] };
  const refuse = (code: string) => async () => {
    node.written.push(code);
    throw Object.assign(new Error(`${code}: write`), { code });
  };
  beforeEach(() => {
    layFunction(node.root, { pciAddress: pfC, interfaces: [{ name: 'ensC' }], totalVfs: 8 });
    node.addLink(30, 'ensC', { parentDevice: pfC, up: false });
  });

  it('configures a PF without VFs and creates VFs, but never changes an existing number of VFs', async () => {
    const { write } = node;
    const upAtWrite: unknown[] = [];
    node.write = async (...args) => {
      upAtWrite.push(node.links.find(({ name }) => name === 'ensC')?.up);
      await write(...args);
    };
    const report = await node.inventory(policy).scan();
    expect([numbers(), upAtWrite, report.problems]).toEqual([['4'], [true], []]);
    expect(addresses(report)).toEqual([a0, a1, b0, ...madeVfs]);
  });

  it('configures a PF whose VFs exist, and offers the VFs even if configuring the PF fails', async () => {
    node.change('ensA', { up: false });
    node.change('ensB', { up: false });
    const { setLink } = node.connection;
    node.connection.setLink = async (index, change) => {
      if (index === node.indexOf('ensA'))
        throw new NetlinkError('netlink-refused', 'no such device', { errno: 'ENODEV' });
      await setLink(index, change);
    };
    const inventory = node.inventory({ pfs: [{ select: { name: ['ensA', 'ensB'] }, numVfs: 2 }] });
    const report = await inventory.scan();
    expect(addresses(report)).toEqual([a0, a1, b0]);
    expect(report.problems).toMatchObject([{ code: 'vfs-incomplete', device: pfA, cause: { errno: 'ENODEV' } }]);
    expect([node.links.find(({ name }) => name === 'ensB')?.up, numbers()]).toEqual([true, []]);
  });

  it('changes no card that the node uses, unless the policy allows it', async () => {
    node.routes = [defaultRoute(30)];
    await node.inventory(policy).scan();
    expect([numbers(), node.links.find(({ name }) => name === 'ensC')?.up]).toEqual([[], false]);
    await node.inventory({ pfs: [{ select: {}, numVfs: 4, allowInUse: true }] }).scan();
    expect(numbers()).toEqual(['4']);
  });

  it('changes no card that is allocated to a claim as a whole', async () => {
    await node.inventory(policy).scan(new Map([[pfC, {}]]));
    expect(numbers()).toEqual([]);
  });

  it('offers the VFs of all other cards while a write to one card hangs, and writes only once', {
    timeout: 30_000,
  }, async () => {
    const clock = new ManualClock();
    const { write } = node;
    const returns = Promise.withResolvers<void>();
    node.write = async (...args) => {
      node.written.push('asked');
      await returns.promise;
      await write(...args);
    };
    // Nor is the card offered as a whole meanwhile.
    const inventory = node.inventory({ ...policy, nics: [{ select: { name: 'ensC' } }] }, clock);
    const first = inventory.scan();
    await expect.poll(() => clock.sleeping().length, { timeout: 10_000 }).toBeGreaterThan(0);
    clock.advance(10_000);
    const report = await first;
    expect(addresses(report)).toEqual([a0, a1, b0]);
    expect(report.problems).toEqual([]);
    // Does not wait again.
    expect(addresses(await inventory.scan())).toEqual([a0, a1, b0]);
    returns.resolve();
    await expect.poll(async () => addresses(await inventory.scan())).toEqual([a0, a1, b0, ...madeVfs]);
    expect(numbers()).toEqual(['asked', '4']);
  });

  it.each([
    [0, 'has 0 of 4 VFs'],
    [3, 'has 3 of 4 VFs'],
  ])(
    'reports that the kernel accepts the number of VFs but creates %i, and retries with growing pauses',
    async (made, problem) => {
      const { write } = node;
      const clock = new ManualClock();
      let count = made;
      node.write = async (path) => await write(path, String(count));
      let policy: InventoryPolicy = four;
      const inventory = node.inventory(() => policy, clock);
      const scan = async () => {
        const scanned = inventory.scan();
        let isOver = false;
        void scanned.then(() => (isOver = true));
        while (!isOver) {
          await new Promise(setImmediate);
          if (clock.sleeping().includes(100)) clock.advance(100);
        }
        return await scanned;
      };
      const first = await scan();
      expect(addresses(first)).toEqual(madeVfs.slice(0, made));
      expect(first.problems).toMatchObject([
        { code: 'vfs-incomplete', device: pfC, message: expect.stringContaining(`PF ensC (${pfC}) ${problem}`) },
      ]);
      // What is there is left alone.
      if (made > 0) return expect((await scan()).problems).toEqual([]);
      const attempts: number[] = [];
      for (let seconds = 0; seconds < 300; seconds += 2) {
        clock.advance(2_000);
        expect((await scan()).problems.map(explain)).toEqual(first.problems.map(explain));
        if (attempts.at(-1) !== numbers().length) attempts.push(numbers().length);
      }
      expect(attempts).toEqual([1, 2, 3, 4]);
      count = 4;
      // Another number is another attempt.
      policy = { pfs: [{ select: { name: 'ensC' }, numVfs: 2 }] };
      const report = await scan();
      expect([addresses(report), report.problems]).toEqual([madeVfs, []]);
    },
  );

  it.each([
    ['ENOSPC', /no interrupt vectors .* the card can have 8/],
    ['ENOMEM', /no memory-mapped I\/O space .* pci=realloc/],
    ['EBUSY', /has VFs already/],
    ['ERANGE', /the card can have 8/],
    ['EINVAL', /the card can have 8/],
    ['EROFS', /sysfs must be mounted writable/],
    ['EACCES', /sysfs must be mounted writable/],
    ['EPERM', /locked down/],
    ['ENOENT', /has no driver, or one that cannot switch VFs on/],
    ['EOPNOTSUPP', /in its present mode/],
    ['EAGAIN', /busy, such as with a reset/],
    ['EIO', /firmware of the card has refused/],
    ['EUCLEAN', /the kernel log says why/],
  ])('names the remedy for a card that fails with %s, and offers the VFs of all other cards', async (code, hint) => {
    node.write = refuse(code);
    const inventory = node.inventory(policy);
    const [report, again] = [await inventory.scan(), await inventory.scan()];
    expect(report.problems).toMatchObject([
      { code: 'sysfs-unwritable', device: pfC, path: file(pfC, 'sriov_numvfs'), hint: expect.stringMatching(hint) },
    ]);
    expect(again.problems).toEqual(report.problems);
    // A refusal that may pass is repeated at once.
    const isRepeated = ['EAGAIN', 'EBUSY'].includes(code);
    expect(numbers().length > 1).toBe(isRepeated);
    expect(addresses(report)).toEqual([a0, a1, b0]);
  });
});

describe('Inventory of whole NICs', () => {
  const nics: InventoryPolicy['nics'] = [{ select: { name: ['ensP', 'ensA'] }, resourceName: 'example.com/nic' }];

  it('offers no NIC unless a rule selects it', async () => {
    expect(await node.offered()).not.toContain(plain);
    expect(await node.offered({ nics: [{ select: { driver: 'e1000e' } }] })).not.toContain(plain);
  });

  it('offers NICs that a rule selects, unless they have VFs', async () => {
    const { devices, excluded } = await node.inventory({ pfs: [], nics }).scan();
    expect(devices).toEqual([
      {
        kind: 'nic',
        name: '0000-1f-00-0',
        pciAddress: plain,
        vendor: '8086',
        device: '1533',
        driver: 'igb',
        interfaceName: 'ensP',
        hardwareAddress: '02:00:00:00:00:0a',
        mtuBytes: 1500,
        linkType: 'ethernet',
        linkSpeedMbps: 1000,
        numaNode: 0,
        pcieRoot: 'pci0000:1f',
        iommuPeers: [],
        rdmaDevices: [],
        resourceName: 'example.com/nic',
        simulated: false,
      },
    ]);
    expect(excluded).toContainEqual({ pciAddress: pfA, reason: 'has-vfs' });
  });

  it.each<[string, Partial<TreeFunction>]>([
    ['without a driver', {}],
    ['in user space', { driver: 'vfio-pci' }],
    ['in user space by uio', { driver: 'igb_uio' }],
    ['with only an RDMA device', { driver: 'mlx5_core', rdmaDevices: ['mlx5_0'] }],
    ['that supports VFs but has none', { totalVfs: 8 }],
  ])('offers a card %s, which has no interface', async (_, more) => {
    layFunction(node.root, { pciAddress: '0000:af:00.0', ...more });
    const { devices } = await node.inventory({ pfs: [], nics: [{ select: { pciAddress: '0000:af:00.0' } }] }).scan();
    expect(devices).toMatchObject([{ kind: 'nic', pciAddress: '0000:af:00.0' }]);
  });

  it('does not offer a NIC whose interface was moved to another namespace', async () => {
    node.takeAway('ensP');
    rmSync(file(plain, 'net'), { recursive: true });
    const { devices, excluded } = await node.inventory({ pfs: [], nics: [{ select: { pciAddress: plain } }] }).scan();
    expect(devices).toEqual([]);
    expect(excluded).toContainEqual({ pciAddress: plain, reason: 'interface-elsewhere' });
  });

  it('never offers a NIC that carries the default route or is a port of another link', async () => {
    node.routes = [defaultRoute(node.indexOf('ensP'))];
    const inventory = node.inventory({ pfs: [], nics });
    const excluded = async () => (await inventory.scan()).excluded.filter(({ pciAddress }) => pciAddress === plain);
    expect(await excluded()).toEqual([{ pciAddress: plain, reason: 'carries-default-route', interfaceName: 'ensP' }]);
    node.routes = [];
    node.addLink(20, 'ovs-system', { kind: 'openvswitch' });
    node.change('ensP', { master: 20 });
    expect(await excluded()).toEqual([{ pciAddress: plain, reason: 'enslaved', interfaceName: 'ensP' }]);
  });

  it('offers no card that could have VFs if the node has an address or a VLAN on it', async () => {
    const pciAddress = '0000:af:00.0';
    layFunction(node.root, { pciAddress, interfaces: [{ name: 'ensQ' }], totalVfs: 8 });
    node.addLink(30, 'ensQ', { parentDevice: pciAddress });
    const policy = { pfs: [], nics: [{ select: { pciAddress } }] };
    expect(await node.offered(policy)).toEqual([pciAddress]);
    node.addresses = [{ index: 30, cidr: '10.40.0.1/24', scope: 'global', tentative: false, dadFailed: false }];
    const excluded = async () => (await node.inventory(policy).scan()).excluded.find((each) => !('pfAddress' in each));
    expect(await excluded()).toEqual({ pciAddress, reason: 'has-address', interfaceName: 'ensQ' });
    node.addresses = [];
    node.addLink(20, 'ensQ.50', { kind: 'vlan', lower: 30 });
    expect(await excluded()).toEqual({ pciAddress, reason: 'has-upper', interfaceName: 'ensQ' });
  });

  it.each([
    [plain, 'ensP', {}],
    ['0000:af:00.0', 'ensQ', { totalVfs: 8 }],
  ])('offers %s with addresses or the default route only if its rule says so', async (pciAddress, name, more) => {
    if (pciAddress !== plain) {
      layFunction(node.root, { pciAddress, interfaces: [{ name }], ...more });
      node.addLink(30, name, { parentDevice: pciAddress });
    }
    const index = node.indexOf(name);
    const reasonsOf = async (allowInUse?: NicRule['allowInUse']) => {
      const rule = { select: { pciAddress }, ...(allowInUse && { allowInUse }) };
      const { excluded, devices } = await node.inventory({ pfs: [], nics: [rule] }).scan();
      const isOffered = devices.some((device) => device.pciAddress === pciAddress);
      return excluded.find((each) => each.pciAddress === pciAddress)?.reason ?? (isOffered ? 'offered' : 'unknown');
    };
    const results = async () => [await reasonsOf(), await reasonsOf('addresses'), await reasonsOf('default-route')];
    const address = { index, cidr: '10.40.0.1/24', scope: 'global', tentative: false, dadFailed: false } as const;
    node.addresses = [address];
    expect(await results()).toEqual(['has-address', 'offered', 'offered']);
    node.routes = [defaultRoute(index)];
    expect(await results()).toEqual(['carries-default-route', 'carries-default-route', 'offered']);
    node.addLink(20, `${name}.50`, { kind: 'vlan', lower: index });
    expect(await results()).toEqual(['carries-default-route', 'carries-default-route', 'has-upper']);
    node.addLink(21, 'br0', { kind: 'bridge' });
    node.change(name, { master: 21 });
    expect(await results()).toEqual(['carries-default-route', 'carries-default-route', 'enslaved']);
  });

  it('checks both ports of a card that has two ports on one function', async () => {
    node.addLink(20, 'br0', { kind: 'bridge' });
    node.addLink(21, 'ensPd1', { parentDevice: plain, master: 20 });
    const { devices, excluded } = await node.inventory({ pfs: [], nics }).scan();
    expect(devices).toEqual([]);
    expect(excluded).toContainEqual({ pciAddress: plain, reason: 'enslaved', interfaceName: 'ensPd1' });
  });

  it.each(['ensP', 'enp31s0'])(
    'keeps offering a NIC in a pod, where the name %s of the policy is not visible',
    async (name) => {
      const policy = { pfs: [], nics: [{ select: { name }, resourceName: 'example.com/nic' }] };
      node.change('ensP', { altNames: ['enp31s0'] });
      const watched = node.inventory(policy);
      const before = await watched.scan();
      const held = new Map([[plain, { interfaceName: 'ensP', altNames: ['enp31s0'] }]]);
      node.change('ensP', { master: 20 });
      expect((await watched.scan(held)).devices).toEqual(before.devices);
      node.takeAway('ensP');
      rmSync(file(plain, 'net'), { recursive: true });
      expect((await watched.scan(held)).devices).toEqual(before.devices);
      // Also when the driver starts anew meanwhile.
      expect((await node.inventory(policy).scan(held)).devices).toMatchObject([
        { pciAddress: plain, resourceName: 'example.com/nic' },
      ]);
    },
  );
});
