import type { KubeClient } from '../../framework/kube/index.ts';
import { explain } from '../../lib/errors.ts';
import { Sysfs } from '../../node/sriov/index.ts';
import { checkApiServer } from './checks/api-server.ts';
import { type Cards, readCards } from './checks/cards.ts';
import { checkDirectories, type DirectoriesCheck } from './checks/directories.ts';
import { checkGate } from './checks/gate.ts';
import { checkHugepages } from './checks/hugepages.ts';
import { checkIommu } from './checks/iommu.ts';
import { checkKernel } from './checks/kernel.ts';
import { checkModules } from './checks/modules.ts';
import { checkCapabilities, checkNetnsDir, checkProcSys } from './checks/permissions.ts';
import { checkRuntime, type RuntimeCheck } from './checks/runtime.ts';
import { checkSriov } from './checks/sriov.ts';
import { type Finding, problem } from './finding.ts';

export interface DoctorOptions extends RuntimeCheck, DirectoriesCheck {
  driverName: string;
  /** Where proc and sysfs are mounted. */
  procDir: string;
  sysDir: string;
  procSysDir: string;
  /** Where the runtime mounts the network namespaces of pods. */
  netnsDir: string;
  /** The driver runs with `--simulate`. */
  simulated: boolean;
  /** @returns `undefined` if there is no configuration to reach it; @throws NetdraError */
  openKube(): KubeClient | undefined;
}

/** Checks everything on the node that the driver depends on. Changes nothing. Never rejects. */
export async function runDoctor(options: DoctorOptions): Promise<Finding[]> {
  const { procDir, sysDir, simulated } = options;
  const cards = await readCards(new Sysfs(sysDir)).catch((error): Cards => ({ pfs: [], vfs: [], problems: [error] }));
  const checks: [check: string, run: () => Finding[] | Promise<Finding[]>][] = [
    ['kernel', () => checkKernel({ procDir, simulated })],
    ['IOMMU', () => checkIommu({ sysDir, procDir, cards })],
    ['SR-IOV', () => checkSriov(cards, simulated)],
    ['modules', () => checkModules(sysDir, cards)],
    ['hugepages', () => checkHugepages(sysDir)],
    ['runtime', () => checkRuntime(options)],
    ['directories', () => checkDirectories(options)],
    ['start gate', () => checkGate(options)],
    ['capabilities', () => checkCapabilities(procDir)],
    ['sysctls', () => checkProcSys(options.procSysDir)],
    ['network namespaces', () => checkNetnsDir(procDir, options.netnsDir)],
    ['API server', () => checkApiServer(options.driverName, () => options.openKube())],
  ];
  const findings: Finding[] = [];
  for (const [check, run] of checks) {
    try {
      findings.push(...(await run()));
    } catch (error) {
      findings.push(problem(check, `cannot be checked: ${explain(error)}`, 'please report this issue'));
    }
  }
  return findings;
}
