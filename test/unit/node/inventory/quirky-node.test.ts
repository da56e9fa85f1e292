import { readdirSync, renameSync, rmSync, symlinkSync, unlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { defined } from '../../../../src/lib/defined.ts';
import { deviceAttributes, Inventory, type InventoryPolicy } from '../../../../src/node/inventory/index.ts';
import { Survey } from '../../../../src/node/inventory/survey.ts';
import { type Link, NetlinkError } from '../../../../src/node/netlink/index.ts';
import { TestNode } from '../sriov/test-node.ts';

/** `npm run test:all` has more of them. */
const runs = Number(process.env.NETDRA_QUIRK_RUNS ?? 10);

const cards = ['0000:3b:00.0', '10000:5e:00.0'] as const;
const vfsOf = (card: number) => [0, 1].map((index) => cards[card]!.replace('00.0', `02.${index}`));
const nameOf = (card: number) => `ens${card}`;
/** The names that the operator knew when it wrote the policy. */
const policy: InventoryPolicy = { pfs: [0, 1].map((card) => ({ select: { name: nameOf(card) } })) };

/** What happens on a node without its operator having changed anything. All of it is about one card. */
type Happening =
  /** The PF's list of its VFs cannot be read: too long, short of memory, no answer. */
  | { kind: 'list fails'; errno: 'EMSGSIZE' | 'ENOBUFS' | 'EAGAIN' }
  | { kind: 'list works' }
  | { kind: 'cable'; carrier: boolean; up: boolean }
  /** After an update, udev gives it another name and keeps the old one as an alternative. */
  | { kind: 'renamed'; name: string }
  /** A claim has the VF: its interface is in a pod, or it is with vfio. Or another component has taken its interface away. */
  | { kind: 'used'; vf: number; by: 'pod' | 'vfio' | 'stranger' }
  /** A file of the function holds what no kernel writes. */
  | { kind: 'damaged'; vf: number; file: 'vendor' | 'class' | 'numa_node'; text: string };

const vfNumber = fc.integer({ min: 0, max: 1 });
const happenings: fc.Arbitrary<Happening> = fc.oneof(
  fc.record({ kind: fc.constant('list fails' as const), errno: fc.constantFrom('EMSGSIZE', 'ENOBUFS', 'EAGAIN') }),
  fc.record({ kind: fc.constant('list works' as const) }),
  fc.record({ kind: fc.constant('cable' as const), carrier: fc.boolean(), up: fc.boolean() }),
  fc.record({ kind: fc.constant('renamed' as const), name: fc.constantFrom('eth7', 'enp59s0np0') }),
  fc.record({ kind: fc.constant('used' as const), vf: vfNumber, by: fc.constantFrom('pod', 'vfio', 'stranger') }),
  fc.record({
    kind: fc.constant('damaged' as const),
    vf: vfNumber,
    file: fc.constantFrom('vendor' as const, 'class' as const, 'numa_node' as const),
    text: fc.constantFrom('', 'x', '0x', '\0'),
  }),
) as fc.Arbitrary<Happening>;
const histories = fc.array(fc.record({ card: fc.integer({ min: 0, max: 1 }), happening: happenings }), {
  maxLength: 8,
});

class QuirkyNode implements Disposable {
  readonly node: TestNode;
  /** PCI addresses of VFs that claims have. */
  readonly used = new Set<string>();
  /** Of those that no claim can have. */
  readonly lost = new Set<string>();
  readonly damaged = new Set<string>();

  constructor() {
    const functions = cards.map((pciAddress, card) => ({
      pciAddress,
      driver: 'ice',
      totalVfs: 8,
      interfaces: [{ name: nameOf(card), speed: '25000', address: `02:00:00:00:0${card}:ff` }],
      vfs: vfsOf(card).map((address, index) => this.#vf(address, card, index)),
    }));
    this.node = new TestNode(functions);
    for (const card of [0, 1]) this.node.vfInfos[nameOf(card)] = [0, 1].map((vfIndex) => ({ vfIndex }));
  }

  happen(card: number, happening: Happening): void {
    const { node } = this;
    const pf = node.links.find(({ parentDevice }) => parentDevice === cards[card])!;
    if (happening.kind === 'list fails') {
      const { errno } = happening;
      node.vfInfoErrors[pf.name] = new NetlinkError('netlink-refused', `no list (${errno})`, { errno });
    } else if (happening.kind === 'list works') delete node.vfInfoErrors[pf.name];
    else if (happening.kind === 'cable') node.change(pf.name, { carrier: happening.carrier, up: happening.up });
    else if (happening.kind === 'renamed') this.#rename(pf, `${happening.name}${card}`);
    else if (happening.kind === 'damaged') this.#damage(vfsOf(card)[happening.vf]!, happening);
    else this.#use(vfsOf(card)[happening.vf]!, happening.by);
  }

  [Symbol.dispose](): void {
    this.node[Symbol.dispose]();
  }

  #vf(pciAddress: string, card: number, index: number) {
    const interfaces = [{ name: `${nameOf(card)}v${index}`, address: `02:00:00:00:0${card}:0${index}` }];
    return { pciAddress, driver: 'iavf', interfaces, rdmaDevices: [`rdma${card}${index}`] };
  }

  #dir(pciAddress: string): string {
    return join(this.node.root, 'bus/pci/devices', pciAddress);
  }

  #rename(pf: Link, name: string): void {
    const { node } = this;
    if (node.links.some((link) => link.name === name)) return;
    const [infos = [], error] = [node.vfInfos[pf.name], node.vfInfoErrors[pf.name]];
    node.vfInfos[name] = infos;
    if (error !== undefined) node.vfInfoErrors[name] = error;
    const net = join(this.#dir(pf.parentDevice!), 'net');
    renameSync(join(net, pf.name), join(net, name));
    node.change(pf.name, { name, altNames: [...pf.altNames.filter((each) => each !== name), pf.name] });
  }

  #damage(pciAddress: string, { file, text }: Happening & { kind: 'damaged' }): void {
    this.damaged.add(pciAddress);
    writeFileSync(join(this.#dir(pciAddress), file), text);
  }

  #use(pciAddress: string, by: 'pod' | 'vfio' | 'stranger'): void {
    const link = this.node.links.find(({ parentDevice }) => parentDevice === pciAddress);
    if (link === undefined) return;
    (by === 'stranger' ? this.lost : this.used).add(pciAddress);
    this.node.takeAway(link.name);
    const dir = this.#dir(pciAddress);
    for (const name of readdirSync(join(dir, 'net'))) rmSync(join(dir, 'net', name), { recursive: true });
    if (by !== 'vfio') return;
    unlinkSync(join(dir, 'driver'));
    symlinkSync('../../bus/pci/drivers/vfio-pci', join(dir, 'driver'));
    rmSync(join(dir, 'infiniband'), { recursive: true });
    rmSync(join(dir, 'net'), { recursive: true });
  }
}

const scanOf = async (inventory: Inventory, held: Parameters<Inventory['scan']>[0]) => {
  const { devices, excluded, problems } = await inventory.scan(held);
  const attributes = new Map(devices.map((device) => [device.pciAddress, withoutNames(deviceAttributes(device))]));
  const named = [...excluded.map(({ pciAddress }) => pciAddress), ...problems.map(({ message }) => message)].join('\n');
  return { devices, attributes, named };
};
/** The name of the PF is a fact about it; the operator's update has changed it. */
const withoutNames = ({ pfName: _pfName, ...attributes }: ReturnType<typeof deviceAttributes>) => attributes;

type History = { card: number; happening: Happening }[];

/** @param remembers whether the driver knows after a restart what it has offered */
async function goThrough(history: History, remembers: boolean): Promise<void> {
  using quirky = new QuirkyNode();
  const inventory = quirky.node.inventory(policy);
  const found = await scanOf(inventory, new Map());
  expect([...found.attributes.keys()]).toEqual([...vfsOf(0), ...vfsOf(1)]);
  const offered = new Map(found.devices.map((device) => [device.pciAddress, device]));
  for (const { card, happening } of history) {
    quirky.happen(card, happening);
    // As the driver stores it with the claim; a driver that has started meanwhile has seen nothing else.
    const held = new Map(
      [...quirky.used].map((address) => [address, defined({ offered: remembers ? offered.get(address) : undefined })]),
    );
    for (const each of [inventory, quirky.node.inventory(policy)]) {
      // What has left may be on its way back: it is offered until it is missed twice.
      if (quirky.lost.size > 0) await each.scan(held);
      const now = await scanOf(each, held);
      for (const address of [...vfsOf(0), ...vfsOf(1)]) {
        const attributes = now.attributes.get(address);
        if (attributes === undefined) expect(now.named).toContain(address);
        if (quirky.lost.has(address)) expect(attributes).toBeUndefined();
        else if (!quirky.damaged.has(address)) expect(attributes).toEqual(found.attributes.get(address));
      }
    }
  }
}

const assertRules = (parameters: fc.Parameters<[History]>, remembers = true) =>
  fc.assert(
    fc.asyncProperty(histories, (history) => goThrough(history, remembers)),
    parameters,
  );

/** Kinds of faults that drivers for such nodes have had: docs/hardware.md. */
const planted: { kind: string; remembers?: boolean; plant?: () => void }[] = [
  {
    kind: 'a card whose VFs cannot be listed has no VFs',
    plant: () => {
      const { vfs } = Survey.prototype;
      vi.spyOn(Survey.prototype, 'vfs').mockImplementation(function (this: Survey, pf, entries) {
        return vfs.call(this, pf, entries, (problem) => {
          throw problem;
        });
      });
    },
  },
  {
    kind: 'an earlier interface name of a card is forgotten',
    plant: () => {
      const { pf } = Survey.prototype;
      vi.spyOn(Survey.prototype, 'pf').mockImplementation(async function (this: Survey, address) {
        const seen = await pf.call(this, address);
        return { ...seen, names: seen.interfaceName === undefined ? [] : [seen.interfaceName] };
      });
    },
  },
  {
    kind: 'an unreadable device is skipped silently',
    plant: () => {
      const { scan } = Inventory.prototype;
      vi.spyOn(Inventory.prototype, 'scan').mockImplementation(async function (this: Inventory, held) {
        return { ...(await scan.call(this, held)), problems: [] };
      });
    },
  },
  { kind: 'an allocated device changes its attributes', remembers: false },
  {
    kind: 'a VF that another component moved away is offered',
    plant: () => {
      const { vfs } = Survey.prototype;
      vi.spyOn(Survey.prototype, 'vfs').mockImplementation(async function (this: Survey, ...args) {
        return (await vfs.apply(this, args)).map((seen) => ({ ...seen, isElsewhere: false }));
      });
    },
  },
];

describe('devices of a node with quirks', { timeout: 400 * runs + 15_000 }, () => {
  afterEach(() => void vi.restoreAllMocks());

  it('keep their identity or are reported as missing, whatever happens to a card', () =>
    assertRules({ numRuns: runs }));

  it.each(planted)('are found to break a rule if this fault is planted: $kind', async ({ plant, remembers }) => {
    plant?.();
    await expect(assertRules({ seed: 1, numRuns: 100, endOnFailure: true }, remembers)).rejects.toThrow(
      'Property failed',
    );
  });
});
