import type { KubeClient } from '../framework/kube/index.ts';
import { explain } from '../lib/errors.ts';
import { Sysfs } from '../node/sriov/index.ts';
import {
  checkCapabilities,
  checkCniPlugins,
  checkDirectories,
  checkGate,
  checkNetnsDir,
  checkProcSys,
  type DirectoriesCheck,
} from './checks/access.ts';
import { checkApiServer, type DriverPermissions } from './checks/api-server.ts';
import { type Cards, checkDevicePlugins, checkModules, checkOpen, checkSriov, readCards } from './checks/cards.ts';
import { checkHugepages, checkIommu, checkKernel } from './checks/machine.ts';
import { checkRuntime, type RuntimeCheck } from './checks/runtime.ts';
import { type Finding, problem, type Verdict } from './finding.ts';

export interface DoctorOptions extends RuntimeCheck, DirectoriesCheck, DriverPermissions {
  /** Root of proc and sysfs. */
  procDir: string;
  sysDir: string;
  procSysDir: string;
  /** Directory in which the runtime mounts the network namespaces of pods. */
  netnsDir: string;
  /** Directories of CNI plugins. */
  cniBinDirs: readonly string[];
  /** Whether the driver runs with `--simulate`. */
  simulated: boolean;
  /** Returns the PCI addresses of claims' devices. @throws StateError `store-unusable` */
  claimed(): ReadonlySet<string>;
  /** Path of the kubelet's record of its device plugins. */
  checkpoint: string;
  /** Opens a client; returns `undefined` if there is no configuration for the API server. @throws NetdraError */
  openKube(): Promise<KubeClient | undefined>;
}

/** Checks all parts of the node on which the driver depends. Read-only; never rejects. */
export async function runDoctor(options: DoctorOptions): Promise<Finding[]> {
  const { procDir, sysDir, simulated } = options;
  const cards = await readCards(new Sysfs(sysDir)).catch((error): Cards => ({ pfs: [], vfs: [], problems: [error] }));
  const checks: [check: string, run: () => Verdict[] | Promise<Verdict[]>][] = [
    ['kernel', () => checkKernel(procDir, simulated)],
    ['IOMMU', () => checkIommu(sysDir, procDir, cards)],
    ['SR-IOV', () => checkSriov(cards, simulated)],
    ['vfio', () => checkOpen(cards, options.claimed())],
    ['device plugins', () => checkDevicePlugins(cards, options.checkpoint)],
    ['modules', () => checkModules(sysDir, cards)],
    ['hugepages', () => checkHugepages(sysDir)],
    ['runtime', () => checkRuntime(options)],
    ['directories', () => checkDirectories(options)],
    ['CNI plugins', () => checkCniPlugins(options.cniUses, options.cniBinDirs)],
    ['start gate', () => checkGate(procDir, options.dataDir)],
    ['capabilities', () => checkCapabilities(procDir)],
    ['sysctls', () => checkProcSys(options.procSysDir)],
    ['network namespaces', () => checkNetnsDir(procDir, options.netnsDir)],
    ['API server', () => checkApiServer(options, () => options.openKube())],
  ];
  const findings: Finding[] = [];
  for (const [check, run] of checks) {
    try {
      for (const verdict of await run()) findings.push({ check, ...verdict });
    } catch (error) {
      findings.push({ check, ...problem(`cannot be checked: ${explain(error)}`, 'please report this issue') });
    }
  }
  return findings;
}
