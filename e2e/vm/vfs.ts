/** The machine's VFs as the kernel tells of them: what the driver's word is compared with. */
import { execFileSync } from 'node:child_process';
import { readdirSync, readlinkSync, writeFileSync } from 'node:fs';
import { basename } from 'node:path';
import type { NetworkDeviceData } from '../../src/metadata/index.ts';
import type { IpLink } from '../ip-link.ts';

/** What `ip -d` says of a link. */
export interface DetailedLink extends IpLink {
  flags: string[];
  /** PCI address. */
  parentdev?: string;
  /** Of a PF: what it has set for its VFs. */
  vfinfo_list?: { vf: number; address: string; vlan_list?: { vlan: number }[]; trust: boolean }[];
}

/** @param netnsPath absent: of the host */
export function detailedLinks(netnsPath?: string): DetailedLink[] {
  const command = ['ip', '-j', '-d', 'addr'];
  const inNetns = netnsPath === undefined ? command : ['nsenter', `--net=${netnsPath}`, ...command];
  const [program = '', ...args] = inNetns;
  return JSON.parse(execFileSync(program, args).toString());
}

/** The interface of a PCI function, by that and not by its name. @param netnsPath absent: in the host's namespace */
export function linkOf({ pciAddress }: Pick<VfState, 'pciAddress'>, netnsPath?: string): DetailedLink | undefined {
  return detailedLinks(netnsPath).find(({ parentdev }) => parentdev === pciAddress);
}

/** A VF as the host sees it: what must be the same before and after a pod had it. */
export interface VfState {
  pciAddress: string;
  /** Name of its PF, and its number there. */
  pf: string;
  index: number;
  /** Kernel driver. */
  driver: string;
  name: string;
  address: string;
  mtu: number;
  isUp: boolean;
  /** What the PF has set. */
  adminAddress: string;
  vlan: number;
  trust: boolean;
}

/** PFs of the machine, in the order of their PCI addresses, with seven VFs each. */
export const pfNames = ['pf0', 'pf1'] as const;

/** The state of all VFs whose interface is in the host's network namespace, in the order of PFs and numbers. */
export function hostVfStates(): VfState[] {
  const links = detailedLinks();
  return pfNames.flatMap((pf) => {
    const infos = links.find(({ ifname }) => ifname === pf)?.vfinfo_list ?? [];
    return infos.flatMap(({ vf: index, address: adminAddress, vlan_list, trust }) => {
      const pciAddress = basename(readlinkSync(`/sys/class/net/${pf}/device/virtfn${index}`));
      const link = links.find(({ parentdev }) => parentdev === pciAddress);
      if (link === undefined) return [];
      const { ifname: name, address, mtu, flags } = link;
      const driver = basename(readlinkSync(`/sys/bus/pci/devices/${pciAddress}/driver`));
      const outside = { adminAddress, vlan: vlan_list?.[0]?.vlan ?? 0, trust };
      return [{ pciAddress, pf, index, driver, name, address, mtu, isUp: flags.includes('UP'), ...outside }];
    });
  });
}

/** All that stays when a driver is bound to a VF to which nobody gave an address: it gets a new one. */
export function withoutAddresses({ address: _address, adminAddress: _adminAddress, ...rest }: VfState) {
  return rest;
}

/** What the PF has set for a VF, wherever its interface is. */
export function pfInfoOf({ pf, index }: VfState) {
  const infos = detailedLinks().find(({ ifname }) => ifname === pf)?.vfinfo_list;
  return infos?.find(({ vf }) => vf === index);
}

/** What the metadata must say of a link that has addresses. */
export function networkDataOf({ ifname, address, addr_info }: DetailedLink): NetworkDeviceData {
  const ips = addr_info
    .filter(({ scope }) => scope === 'global')
    .map(({ local, prefixlen }) => `${local}/${prefixlen}`);
  return { interfaceName: ifname, hardwareAddress: address, ips: ips.sort() };
}

/** A VF by its place. */
export function vfAt(vfs: VfState[], pf: string, index: number): VfState {
  const vf = vfs.find((each) => each.pf === pf && each.index === index);
  if (vf === undefined) throw new Error(`${pf} has no VF ${index}`);
  return vf;
}

/** Switches off all VFs of a PF, and on as many; 0 leaves none. Names are as when the machine started. */
export function switchVfs(pf: string, count: number): void {
  const device = `/sys/class/net/${pf}/device`;
  writeFileSync(`${device}/sriov_numvfs`, '0');
  if (count > 0) writeFileSync(`${device}/sriov_numvfs`, String(count));
  for (let index = 0; index < count; index++) {
    const [name = ''] = readdirSync(`${device}/virtfn${index}/net`);
    execFileSync('ip', ['link', 'set', name, 'name', `${pf}v${index}`]);
  }
}
