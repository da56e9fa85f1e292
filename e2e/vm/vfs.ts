/** The machine's VFs as the kernel reports them, for comparison with what the driver reports. */
import { execFileSync } from 'node:child_process';
import { readdirSync, readlinkSync, writeFileSync } from 'node:fs';
import { basename } from 'node:path';
import type { NetworkDeviceData } from '../../src/metadata/index.ts';
import type { IpLink } from '../ip-link.ts';

/** A link in the output of `ip -d`. */
export interface DetailedLink extends IpLink {
  flags: string[];
  /** PCI address. */
  parentdev?: string;
  /** Of a PF: its settings for its VFs. */
  vfinfo_list?: { vf: number; address: string; vlan_list?: { vlan: number }[]; trust: boolean }[];
}

/** @param netnsPath absent: the host's namespace */
export function detailedLinks(netnsPath?: string): DetailedLink[] {
  const command = ['ip', '-j', '-d', 'addr'];
  const inNetns = netnsPath === undefined ? command : ['nsenter', `--net=${netnsPath}`, ...command];
  const [program = '', ...args] = inNetns;
  return JSON.parse(execFileSync(program, args).toString());
}

/** The interface of a PCI function, found by address, not by name. @param netnsPath absent: the host's namespace */
export function linkOf({ pciAddress }: Pick<VfState, 'pciAddress'>, netnsPath?: string): DetailedLink | undefined {
  return detailedLinks(netnsPath).find(({ parentdev }) => parentdev === pciAddress);
}

/** A VF as the host sees it: must be the same before and after a pod had it. */
export interface VfState {
  pciAddress: string;
  /** Name of its PF, and its number on that PF. */
  pf: string;
  index: number;
  /** Kernel driver. */
  driver: string;
  name: string;
  address: string;
  mtu: number;
  isUp: boolean;
  /** Settings of the PF. */
  adminAddress: string;
  vlan: number;
  trust: boolean;
}

/** PFs of the machine, in the order of their PCI addresses, with seven VFs each. */
export const pfNames = ['pf0', 'pf1'] as const;

/** The state of all VFs whose interface is in the host's network namespace, ordered by PF and number. */
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

/** The state that is kept when a driver is bound to a VF without an assigned address: the VF gets a new one. */
export function withoutAddresses({ address: _address, adminAddress: _adminAddress, ...rest }: VfState) {
  return rest;
}

/** The PF's settings for a VF, wherever its interface is. */
export function pfInfoOf({ pf, index }: VfState) {
  const infos = detailedLinks().find(({ ifname }) => ifname === pf)?.vfinfo_list;
  return infos?.find(({ vf }) => vf === index);
}

/** The expected metadata of a link with addresses. */
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

/** Switches off all VFs of a PF, then switches on this many; 0 leaves none. Names are as when the machine started. */
export function switchVfs(pf: string, count: number): void {
  const device = `/sys/class/net/${pf}/device`;
  writeFileSync(`${device}/sriov_numvfs`, '0');
  if (count > 0) writeFileSync(`${device}/sriov_numvfs`, String(count));
  for (let index = 0; index < count; index++) {
    const [name = ''] = readdirSync(`${device}/virtfn${index}/net`);
    execFileSync('ip', ['link', 'set', name, 'name', `${pf}v${index}`]);
  }
}
