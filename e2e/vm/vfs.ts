/** The machine's VFs as the kernel reports them, for comparison with what the driver reports. */
import { execFileSync } from 'node:child_process';
import { readlinkSync } from 'node:fs';
import { basename } from 'node:path';
import type { NetworkDeviceData } from '../../src/framework/metadata/index.ts';
import type { IpLink } from '../ip-link.ts';

/** A link in the output of `ip -d`. */
export interface DetailedLink extends IpLink {
  flags: string[];
  /** PCI address. */
  parentdev?: string;
  /** Of a PF: its settings for its VFs. */
  vfinfo_list?: { vf: number; address: string; vlan_list?: { vlan: number }[]; trust: boolean; spoofchk: boolean }[];
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
  return toVfStates(detailedLinks(), (path) => readlinkSync(path));
}

/** Prints what `parseVfStates` reads. For a machine where Node.js takes seconds to start. */
export const vfStatesScript = `ip -j -d addr
echo
shopt -s nullglob
stat --format=%N / ${pfNames.map((pf) => `/sys/class/net/${pf}/device/virtfn*`).join(' ')} /sys/bus/pci/devices/*/driver`;

/** @param output of `vfStatesScript` on another machine @returns the same as `hostVfStates` on that machine */
export function parseVfStates(output: string): VfState[] {
  const [links = '', ...lines] = output.trim().split('\n');
  const targets = new Map<string, string>();
  for (const line of lines) {
    const [, path, target] = /^'(.*)' -> '(.*)'$/.exec(line) ?? [];
    if (path !== undefined && target !== undefined) targets.set(path, target);
  }
  return toVfStates(JSON.parse(links), (path) => targets.get(path) ?? '');
}

/** @param targetOf returns the target of a symbolic link */
function toVfStates(links: readonly DetailedLink[], targetOf: (path: string) => string): VfState[] {
  return pfNames.flatMap((pf) => {
    const infos = links.find(({ ifname }) => ifname === pf)?.vfinfo_list ?? [];
    return infos.flatMap(({ vf: index, address: adminAddress, vlan_list, trust }) => {
      const pciAddress = basename(targetOf(`/sys/class/net/${pf}/device/virtfn${index}`));
      const link = links.find(({ parentdev }) => parentdev === pciAddress);
      if (link === undefined) return [];
      const { ifname: name, address, mtu, flags } = link;
      const driver = basename(targetOf(`/sys/bus/pci/devices/${pciAddress}/driver`));
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
export function switchVfsScript(pf: string, count: number): string {
  const device = `/sys/class/net/${pf}/device`;
  return `echo 0 >${device}/sriov_numvfs
    if [ ${count} -gt 0 ]; then echo ${count} >${device}/sriov_numvfs; fi
    for ((index = 0; index < ${count}; index++)); do
      ip link set "$(ls "${device}/virtfn$index/net")" name "${pf}v$index"
    done`;
}

/**
 * Pulls the cable of a PF, or plugs it in again, and waits until the PF has noticed. VFs of a real card then notice, too; QEMU's
 * card tells them nothing, so their driver has to look again, which it does after the PF was down.
 */
export function cableScript(pf: (typeof pfNames)[number], isPlugged: boolean): string {
  return `echo cable ${pfNames.indexOf(pf)} ${isPlugged ? 'on' : 'off'} >/dev/virtio-ports/control
    until [ "$(</sys/class/net/${pf}/carrier)" = ${Number(isPlugged)} ]; do sleep 0.1; done
    ${isPlugged ? '' : `ip link set ${pf} down; ip link set ${pf} up`}`;
}
