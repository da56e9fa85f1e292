import { basename, dirname } from 'node:path';
import { type Clock, systemClock } from '../../../../src/lib/clock.ts';
import { defined } from '../../../../src/lib/defined.ts';
import { deviceAttributes, Inventory, type InventoryPolicy } from '../../../../src/node/inventory/index.ts';
import {
  type Address,
  isDefaultRoute,
  isReachable,
  type Link,
  type LinkChange,
  type LinkTable,
  type Route,
  type VfInfo,
} from '../../../../src/node/netlink/index.ts';
import { Sysfs, VfActivation } from '../../../../src/node/sriov/index.ts';
import { buildLink } from '../../../doubles/links.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';
import { layTree, layVfs, linksOf, type TreeFunction } from './pci-tree.ts';

/** A node with such cards: real files for sysfs, and answers of netlink that go with them. */
export class TestNode implements Disposable {
  links: Link[];
  routes: Route[] = [];
  addresses: Address[] = [];
  /** By interface name of the PF. */
  vfInfos: Record<string, VfInfo[]> = {};
  /** What requests for the VFs of a PF fail with, by the name of its interface. */
  vfInfoErrors: Record<string, Error> = {};
  /** How often PFs were asked about their VFs. */
  vfInfoRequests = 0;
  readonly #dir = tempDir();

  constructor(functions: TreeFunction[]) {
    layTree(this.#dir.path, functions);
    this.links = linksOf(functions);
  }

  get root(): string {
    return this.#dir.path;
  }

  /** Writes into sysfs. Default: the kernel makes the VFs that are asked for. */
  write = async (path: string, text: string): Promise<void> => {
    this.written.push(text);
    const pciAddress = basename(dirname(path));
    const vfs = Array.from({ length: Number(text) }, (_, index) => ({
      pciAddress: pciAddress.replace('00.0', `02.${index}`),
    }));
    layVfs(this.root, pciAddress, vfs);
  };
  /** What was written into sysfs. */
  readonly written: string[] = [];

  readonly connection = {
    setLink: async (index: number, { up }: LinkChange) => {
      this.links = this.links.map((link) => (link.index === index ? { ...link, ...defined({ up }) } : link));
    },
    links: async () => this.links,
    async linkTable(this: { links: () => Promise<Link[]> }): Promise<LinkTable> {
      const links = await this.links();
      return {
        all: () => links,
        candidates: (of) =>
          links.filter(({ parentDevice }) => of.some(({ pciAddress }) => pciAddress === parentDevice)),
      };
    },
    defaultRoutes: async () => this.routes.filter(isDefaultRoute),
    reachableAddresses: async () => this.addresses.filter(({ scope }) => isReachable(scope)),
    vfInfos: async (index: number) => {
      this.vfInfoRequests++;
      const name = this.links.find((link) => link.index === index)?.name ?? '';
      const error = this.vfInfoErrors[name];
      if (error !== undefined) throw error;
      return this.vfInfos[name] ?? [];
    },
  };

  /** @param policy one for good, or what returns the one in force. @param clock of the switching of VFs */
  inventory(policy: InventoryPolicy | (() => InventoryPolicy) = {}, clock: Clock = systemClock): Inventory {
    const { connection } = this;
    const sysfs = new Sysfs(this.root, (path, text) => this.write(path, text), clock);
    const vfSwitch = new VfActivation({ sysfs, connection, clock });
    const inForce = typeof policy === 'function' ? policy : () => policy;
    return new Inventory({ sysfs, connection, simulated: false, policy: inForce, vfSwitch });
  }

  /** PCI addresses of what is offered under a policy. */
  async offered(policy?: InventoryPolicy): Promise<string[]> {
    return (await this.inventory(policy).scan()).devices.map(({ pciAddress }) => pciAddress);
  }

  /** Attributes of what is offered, by PCI address, without their types. */
  async attributes(policy?: InventoryPolicy): Promise<Record<string, Record<string, string | number | boolean>>> {
    const { devices } = await this.inventory(policy).scan();
    return Object.fromEntries(
      devices.map((device) => [
        device.pciAddress,
        Object.fromEntries(
          Object.entries(deviceAttributes(device)).map(([name, value]) => [name, Object.values(value)[0]]),
        ),
      ]),
    );
  }

  /** Changes what netlink says of an interface. */
  change(name: string, more: Partial<Link>): void {
    this.links = this.links.map((link) => (link.name === name ? Object.assign({}, link, more) : link));
  }

  /** The interface is in another network namespace now. */
  takeAway(name: string): void {
    this.links = this.links.filter((link) => link.name !== name);
  }

  /** Another interface of the host. */
  addLink(index: number, name: string, more: Partial<Link> = {}): void {
    this.links = [...this.links, buildLink({ index, name, ...more })];
  }

  indexOf(name: string): number {
    return this.links.find((link) => link.name === name)!.index;
  }

  [Symbol.dispose]() {
    this.#dir[Symbol.dispose]();
  }
}

export function defaultRoute(...indices: number[]): Route {
  return { destination: '0.0.0.0/0', links: indices, isUnicast: true, table: 254, priority: 0 };
}
