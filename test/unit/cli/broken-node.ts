import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { CriRuntime } from '../../../src/cli/cri-runtime.ts';
import { type DoctorOptions, runDoctor } from '../../../src/cli/doctor.ts';
import type { Finding } from '../../../src/cli/finding.ts';
import { NetdraError } from '../../../src/lib/errors.ts';
import { tempDir } from '../../doubles/temp-dir.ts';
import { layTree } from '../node/sriov/pci-tree.ts';

export interface NodeFaults {
  iommu?: 'own' | 'shared' | 'none';
  kernel?: string;
  commandLine?: string;
  /** What `readCri` gives; `undefined`: nothing answers. */
  cri?: CriRuntime;
  /** Code of the system that connecting to NRI fails with. */
  nriError?: string;
  hugepages?: number;
  drivers?: string[];
  capabilities?: string;
  mountinfo?: string;
  /** `flags` of the PF's interface, as sysfs shows them. */
  pfFlags?: string;
  /** Kernel drivers of the VFs; `undefined`: none is bound. */
  vfDrivers?: (string | undefined)[];
  options?: Partial<DoctorOptions>;
}

/** A node on which everything is well, in a directory, but for the faults. */
export class BrokenNode implements Disposable {
  readonly #dir = tempDir();
  readonly #faults: NodeFaults;
  readonly root = this.#dir.path;

  constructor(faults: NodeFaults = {}) {
    const { iommu = 'own', drivers = ['i40e', 'iavf', 'vfio-pci'] } = faults;
    this.#faults = faults;
    const group = (index: number) => ({ own: `${40 + index}`, shared: '40', none: undefined })[iommu];
    layTree(this.root, [
      {
        pciAddress: '0000:3b:00.0',
        driver: 'i40e',
        ...definedGroup(iommu === 'none' ? undefined : '30'),
        interfaces: [{ name: 'ens1f0' }],
        totalVfs: 64,
        vfs: (faults.vfDrivers ?? ['iavf', 'iavf']).map((driver, index) => ({
          pciAddress: `0000:3b:02.${index}`,
          ...(driver === undefined ? {} : { driver }),
          ...definedGroup(group(index)),
        })),
      },
    ]);
    for (const driver of drivers) mkdirSync(this.path('bus/pci/drivers', driver), { recursive: true });
    const { kernel = '6.12.0', commandLine = 'quiet', hugepages = 4 } = faults;
    const { capabilities = '000001ffffffffff', mountinfo = '' } = faults;
    this.write('bus/pci/devices/0000:3b:00.0/net/ens1f0/flags', `${faults.pfFlags ?? '0x1003'}\n`);
    this.write('proc/sys/kernel/osrelease', kernel);
    this.write('proc/cmdline', commandLine);
    this.write('proc/self/status', `Name:\tnode\nCapEff:\t${capabilities}\n`);
    this.write('proc/self/mountinfo', mountinfo);
    this.write('proc/sys/net/ipv4/conf/lo/arp_notify', '0');
    this.write('kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages', `${hugepages}`);
    this.write('kernel/mm/hugepages/hugepages-1048576kB/free_hugepages', '1');
    if (iommu !== 'none') this.write('class/iommu/dmar0/name', '');
    for (const dir of ['plugins', 'registry', 'cdi', 'netns']) mkdirSync(this.path(dir));
    this.write('cni/bin/host-device', '');
    this.write('cri.sock', '');
  }

  path(...parts: string[]): string {
    return join(this.root, ...parts);
  }

  write(path: string, text: string): void {
    mkdirSync(dirname(this.path(path)), { recursive: true });
    writeFileSync(this.path(path), text);
  }

  options(): DoctorOptions {
    const { nriError, options } = this.#faults;
    const runtime = { name: 'containerd', version: '2.2.6' };
    const cri = 'cri' in this.#faults ? this.#faults.cri : { ...runtime, cdi: { enabled: true } };
    return {
      procDir: this.path('proc'),
      sysDir: this.root,
      claimed: () => new Set(),
      procSysDir: this.path('proc/sys'),
      netnsDir: this.path('netns'),
      checkpoint: this.path('device-plugins/kubelet_internal_checkpoint'),
      dataDir: this.path('plugins/sriov.netdra.dev'),
      kubeletRegistryDir: this.path('registry'),
      cdiDir: this.path('cdi'),
      cniUses: ['attach', 'ipam'],
      cniBinDirs: [this.path('cni/bin')],
      stateDir: this.path('plugins/sriov.netdra.dev'),
      nriSocket: '/run/nri/nri.sock',
      criSockets: [this.path('cri.sock')],
      driverName: 'sriov.netdra.dev',
      nodeView: true,
      policyObjects: true,
      sriovOperator: 'sriov-network-operator',
      simulated: false,
      openKube: async () => undefined,
      async readCri() {
        if (cri === undefined) throw new NetdraError('cri-unavailable', 'the runtime does not answer');
        return cri;
      },
      async probeNri() {
        if (nriError === undefined) return { ...runtime, requestTimeoutMs: 2_000 };
        const cause = Object.assign(new Error(`connect ${nriError}`), { code: nriError });
        throw new NetdraError('nri-unavailable', 'no NRI connection', { cause });
      },
      ...options,
    };
  }

  /** The findings of a kind, as `level check: message`. */
  async diagnose(...levels: Finding['level'][]): Promise<string[]> {
    const findings = await runDoctor(this.options());
    return findings
      .filter(({ level }) => levels.length === 0 || levels.includes(level))
      .map(({ level, check, message }) => `${level} ${check}: ${message}`);
  }

  async findingOf(check: string): Promise<Finding | undefined> {
    return (await runDoctor(this.options())).find((finding) => finding.check === check);
  }

  [Symbol.dispose](): void {
    this.#dir[Symbol.dispose]();
  }
}

function definedGroup(iommuGroup: string | undefined): { iommuGroup?: string } {
  return iommuGroup === undefined ? {} : { iommuGroup };
}
