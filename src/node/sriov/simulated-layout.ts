import { createHash } from 'node:crypto';
import { type Link, maxInterfaceNameBytes } from '../netlink/index.ts';
import { SriovError } from './errors.ts';
import type { FileTree } from './file-tree.ts';
import { formatSimulatedAlias, simulatedPrefix } from './pci-address.ts';

/** Size and names of a simulation. */
export interface SimulationPlan {
  /** Number of PFs: 1 … 16. */
  pfs: number;
  /** Number of VFs of each PF: 1 … 240. */
  vfsPerPf: number;
  /** NUMA nodes of the PFs, in order; the last one applies to all further PFs. Absent: PFs report no node. */
  numaNodes?: readonly number[];
  /**
   * Prefix of all interface names, which must not end with a digit. Simulations with different prefixes do not see each
   * other.
   */
  namePrefix: string;
  /** Name of the node. MAC addresses depend on it, since VFs with the same names on two nodes may be in one network. */
  nodeName: string;
}

/** A link that acts as a function of a card. Its names and addresses follow from the plan. */
interface SimulatedFunction {
  pciAddress: string;
  name: string;
  alias: string;
  hardwareAddress: string;
}

/** A veth pair: the VF, which moves into pods, and its peer in the PF's bridge. */
export interface SimulatedVf extends SimulatedFunction {
  vfIndex: number;
  peerName: string;
  peerAddress: string;
}

/** A bridge that acts as a PF. */
export interface SimulatedPf extends SimulatedFunction {
  vfs: SimulatedVf[];
  /** NUMA node; -1 if the PF reports none. */
  numaNode: number;
}

/**
 * First and last PCI domain of simulated cards. No hardware has these domains: firmware counts from 0000, and domains of
 * hypervisors and VMD start at 10000.
 */
const firstDomain = 0xfe00;
const lastDomain = 0xffff;
const maxPfs = 16;
// Maximum number of VFs of a PF: a bus has 32 slots of 8 functions, and the first two slots belong to the PF.
const maxVfsPerPf = 240;
const firstVfFunction = 16;
const mtuBytes = 1500;
/** Driver that simulated VFs are always bound to. */
export const simulatedDriver = 'veth';

/**
 * Plans a simulation. Names, addresses and MACs follow from the plan alone, so that a restarted driver finds its links again.
 * @throws SriovError `simulation-invalid`
 */
export function planSimulation(plan: SimulationPlan): SimulatedPf[] {
  const { pfs, vfsPerPf, namePrefix } = plan;
  if (!Number.isInteger(pfs) || pfs < 1 || pfs > maxPfs) throw invalid(`${pfs} PFs`, `use 1 to ${maxPfs}`);
  if (!Number.isInteger(vfsPerPf) || vfsPerPf < 1 || vfsPerPf > maxVfsPerPf) {
    throw invalid(`${vfsPerPf} VFs for each PF`, `use 1 to ${maxVfsPerPf}`);
  }
  const longest = `${namePrefix}${pfs - 1}v${vfsPerPf - 1}`;
  if (!/^[a-z]([a-z0-9_-]*[a-z_-])?$/.test(namePrefix) || longest.length > maxInterfaceNameBytes) {
    const hint = `use lower-case letters and digits, not a digit at the end, so that ${longest} has at most 15 bytes`;
    throw invalid(`the name prefix ${JSON.stringify(namePrefix)}`, hint);
  }
  return Array.from({ length: pfs }, (_, index) => planPf(plan, index));
}

function planPf({ namePrefix, vfsPerPf, nodeName, numaNodes = [] }: SimulationPlan, index: number): SimulatedPf {
  const name = `${namePrefix}${index}`;
  const domain = domainOf(namePrefix);
  const vfs = Array.from({ length: vfsPerPf }, (_, vfIndex): SimulatedVf => {
    const peerName = `${name}p${vfIndex}`;
    const vfName = `${name}v${vfIndex}`;
    const hardwareAddress = deriveHardwareAddress(`${nodeName} ${vfName}`);
    const vf = { ...planFunction(vfName, formatAddress(domain, index, firstVfFunction + vfIndex)), hardwareAddress };
    return { ...vf, vfIndex, peerName, peerAddress: deriveHardwareAddress(peerName) };
  });
  const numaNode = numaNodes[index] ?? numaNodes.at(-1) ?? -1;
  return { ...planFunction(name, formatAddress(domain, index, 0)), vfs, numaNode };
}

/**
 * Returns the PCI domain for a prefix. Different prefixes need different domains: links are found by their alias, which
 * contains the PCI address, and a driver must not find the links of another one.
 */
function domainOf(namePrefix: string): number {
  if (namePrefix === simulatedPrefix) return firstDomain;
  return firstDomain + 1 + (hash(namePrefix).readUInt32BE() % (lastDomain - firstDomain));
}

function planFunction(name: string, pciAddress: string): SimulatedFunction {
  return { pciAddress, name, alias: formatSimulatedAlias(pciAddress), hardwareAddress: deriveHardwareAddress(name) };
}

/** Returns whether a link is the host's end of a simulated pair with this prefix, perhaps from a simulation of another size. */
export function isSimulatedPeer(link: Link, namePrefix: string): boolean {
  return link.kind === 'veth' && isOurs(link, namePrefix, /^\d+p\d+$/);
}

/** Returns whether a link is the bridge of a simulated PF with this prefix. */
export function isSimulatedPf(link: Link, namePrefix: string): boolean {
  return link.kind === 'bridge' && isOurs(link, namePrefix, /^\d+$/);
}

/** Returns whether netdra has created a link: its address is derived from its name in a way that no other program uses. */
function isOurs({ name, hardwareAddress }: Link, namePrefix: string, rest: RegExp): boolean {
  if (!name.startsWith(namePrefix) || !rest.test(name.slice(namePrefix.length))) return false;
  return hardwareAddress === deriveHardwareAddress(name);
}

/** Returns the sysfs tree of these cards, as the host would see it with all VFs on the host. */
export function simulatedSysfs(pfs: SimulatedPf[]): FileTree {
  const tree: FileTree = new Map();
  tree.set(`bus/pci/drivers/${simulatedDriver}/module`, { text: '' });
  for (const pf of pfs) {
    const { dir, root } = addFunction(tree, pf, pf, [
      ['sriov_totalvfs', `${maxVfsPerPf}`],
      ['sriov_numvfs', `${pf.vfs.length}`],
    ]);
    for (const vf of pf.vfs) {
      const added = addFunction(tree, pf, vf);
      tree.set(`${added.dir}/physfn`, { target: `../${pf.pciAddress}` });
      tree.set(`${dir}/virtfn${vf.vfIndex}`, { target: `../${vf.pciAddress}` });
    }
    tree.set(`${root}/uevent`, { text: '' });
  }
  return tree;
}

function addFunction(
  tree: FileTree,
  pf: SimulatedPf,
  { pciAddress, name, hardwareAddress }: SimulatedFunction,
  more: [string, string][] = [],
): { dir: string; root: string } {
  const root = `devices/pci${pf.pciAddress.slice(0, 7)}`;
  const dir = `${root}/${pciAddress}`;
  const files: [string, string][] = [
    ['vendor', '0x1af4'], // Red Hat, of virtio: the nearest to a vendor that veth has
    ['device', pciAddress === pf.pciAddress ? '0xfe00' : '0xfe01'],
    ['class', '0x020000'],
    ['numa_node', `${pf.numaNode}`],
    [`net/${name}/address`, hardwareAddress],
    [`net/${name}/mtu`, `${mtuBytes}`],
    [`net/${name}/type`, '1'],
    [`net/${name}/speed`, '10000'],
    ...more,
  ];
  for (const [path, text] of files) tree.set(`${dir}/${path}`, { text: `${text}\n` });
  tree.set(`${dir}/driver`, { target: `../../../bus/pci/drivers/${simulatedDriver}` });
  tree.set(`bus/pci/devices/${pciAddress}`, { target: `../../../${dir}` });
  return { dir, root };
}

function formatAddress(domain: number, bus: number, deviceFunction: number): string {
  const hex = (value: number) => value.toString(16).padStart(2, '0');
  return `${hex(domain)}:${hex(bus)}:${hex(deviceFunction >> 3)}.${deviceFunction & 7}`;
}

/**
 * Returns a locally administered unicast address with 40 bits of a hash, so that addresses of nodes in one network
 * practically never collide.
 */
function deriveHardwareAddress(seed: string): string {
  return ['02', ...hash(seed).toString('hex', 0, 5).match(/../g)!].join(':');
}

function hash(seed: string): Buffer {
  return createHash('sha256').update(`netdra simulated ${seed}`).digest();
}

function invalid(what: string, hint: string): SriovError {
  return new SriovError('simulation-invalid', `cannot simulate VFs with ${what}`, { hint });
}
