import { execFileSync } from 'node:child_process';
import { readlinkSync } from 'node:fs';
import { basename } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from '../../src/logger.ts';
import { decodeStream, type MetadataDocument } from '../../src/metadata/index.ts';
import { testDriver } from '../../test/doubles/objects.ts';
import { Bench, type IpLink, type RunningContainer } from '../node/bench.ts';
import type { NodeTools } from '../node/tools.ts';

/** Where Debian puts what the guest's image holds. */
const guestTools: NodeTools = {
  containerdDirs: { '2.1': '/usr/bin', '1.7': '/usr/bin' },
  runc: '/usr/sbin/runc',
  cniBinDir: '/usr/lib/cni',
  busybox: '/usr/bin/busybox',
};

/** A node whose VFs are real. The runtime waits longer for a hook than usual: processors are emulated here. */
export async function startVmBench(logger: Logger): Promise<Bench> {
  return await Bench.start({
    version: '2.1',
    logger,
    tools: guestTools,
    requestTimeoutMs: 20_000,
    settings: { simulate: undefined },
  });
}

/** What `ip -d` says of a link. */
export interface DetailedLink extends IpLink {
  flags: string[];
  /** PCI address. */
  parentdev?: string;
  /** Of a PF: what it has set for its VFs. */
  vfinfo_list?: { vf: number; address: string; vlan_list?: { vlan: number }[] }[];
}

/** @param netnsPath absent: of the host */
export function detailedLinks(netnsPath?: string): DetailedLink[] {
  const command = ['ip', '-j', '-d', 'addr'];
  const inNetns = netnsPath === undefined ? command : ['nsenter', `--net=${netnsPath}`, ...command];
  const [program = '', ...args] = inNetns;
  return JSON.parse(execFileSync(program, args).toString());
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
  /** What the PF has set. */
  vlan: number;
}

/** PFs of the machine, in the order of their PCI addresses. */
export const pfNames = ['pf0', 'pf1'] as const;

/** The state of all VFs whose interface is in the host's network namespace. */
export function hostVfStates(): VfState[] {
  const links = detailedLinks();
  return pfNames.flatMap((pfName) => {
    const pf = links.find(({ ifname }) => ifname === pfName);
    return (pf?.vfinfo_list ?? []).flatMap(({ vf, vlan_list }) => {
      const pciAddress = basename(readlinkSync(`/sys/class/net/${pfName}/device/virtfn${vf}`));
      const link = links.find(({ parentdev }) => parentdev === pciAddress);
      if (link === undefined) return [];
      const driver = basename(readlinkSync(`/sys/bus/pci/devices/${pciAddress}/driver`));
      const { ifname: name, address, mtu } = link;
      return [{ pciAddress, pf: pfName, index: vf, driver, name, address, mtu, vlan: vlan_list?.[0]?.vlan ?? 0 }];
    });
  });
}

/** The name of a VF in the driver's slice. */
export function deviceName({ pciAddress }: VfState): string {
  return pciAddress.replaceAll(/[:.]/g, '-');
}

/** What the driver offers: the devices of its only slice. */
export function offeredDevices(bench: Bench): { name: string; attributes: Record<string, object> }[] {
  type Slice = { spec: { devices: { name: string; attributes: Record<string, object> }[] } };
  return bench.api.objects<Slice>('ResourceSlice').flatMap(({ spec }) => spec.devices);
}

/** Starts the driver and waits until it offers all VFs of both cards. */
export async function startVmDriver(bench: Bench): Promise<void> {
  await bench.startDriver();
  const endsAt = performance.now() + 60_000;
  while (offeredDevices(bench).length !== 14) {
    if (performance.now() > endsAt) throw new Error(`offered: ${JSON.stringify(offeredDevices(bench))}`);
    await sleep(50);
  }
}

/** An entry of a claim's configuration. */
export type ClaimConfig = ReturnType<typeof vfConfig | typeof classConfig>;

/** What the user writes into a claim. */
export function vfConfig(fields: object) {
  return { source: 'FromClaim' as const, parameters: { ...vfConfigType, ...fields } };
}

/** What the operator writes into the class: some fields are taken from there only. */
export function classConfig(fields: object) {
  return { source: 'FromClass' as const, parameters: { ...vfConfigType, ...fields } };
}

const vfConfigType = { apiVersion: 'netdra.dev/v1alpha1', kind: 'VFConfig' };

/** The file of a claim that was created by name, as a container sees it. */
export async function readMetadata(
  container: RunningContainer,
  claim: string,
  request: string,
): Promise<MetadataDocument> {
  const root = '/var/run/kubernetes.io/dra-device-attributes/resourceclaims';
  const { stdout, stderr, exitCode } = await container.exec(
    ...['cat', `${root}/${claim}/${request}/${testDriver}-metadata.json`],
  );
  if (exitCode !== 0) throw new Error(`no metadata for ${claim}/${request}: ${stderr}`);
  return decodeStream(stdout);
}
