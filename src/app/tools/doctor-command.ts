import type { Command } from 'commander';
import { driverDirs, runTool, type ToolOptions, toolCommand, writeOutput } from './command.ts';
import type { Finding, FindingLevel } from './finding.ts';
import type { Terminal } from './terminal.ts';

const flags = [
  'driverName',
  'kubeconfig',
  'kubeletPluginsDir',
  'kubeletRegistryDir',
  'cdiDir',
  'stateDir',
  'procSysDir',
  'nriSocket',
  'simulate',
] as const;
type DoctorOptions = ToolOptions<(typeof flags)[number]> & { criSocket?: string; netnsDir: string };

const criSockets = ['/run/containerd/containerd.sock', '/run/crio/crio.sock'];

/** `netdra doctor`: finds what on this node keeps the driver from working. Exit code 1 if anything does. */
export function doctorCommand(): Command {
  return toolCommand(
    'doctor',
    'look at this node: what keeps the driver from its work, and how to mend it; changes nothing',
    flags,
  )
    .option('--cri-socket <path>', `the runtime's own socket (default: ${criSockets.join(', or ')})`)
    .option('--netns-dir <path>', "where the runtime mounts pods' network namespaces", '/var/run/netns')
    .action((options: DoctorOptions) => runTool(() => doctor(options)));
}

async function doctor(options: DoctorOptions): Promise<void> {
  const { runDoctor } = await import('./doctor.ts');
  const { readCriRuntime } = await import('./cri-runtime.ts');
  const { probeNri } = await import('./nri-probe.ts');
  const { hasServiceAccount, KubeClient } = await import('../../framework/kube/index.ts');
  const { loadKubeConfig } = await import('../../framework/kube/kube-config.ts');
  const { systemClock } = await import('../../lib/clock.ts');
  const { kubeconfig, criSocket, simulate } = options;
  const findings = await runDoctor({
    ...options,
    ...driverDirs(options),
    procDir: '/proc',
    sysDir: '/sys',
    simulated: simulate !== undefined,
    criSockets: criSocket === undefined ? criSockets : [criSocket],
    readCri: readCriRuntime,
    probeNri,
    openKube: () =>
      kubeconfig === undefined && !hasServiceAccount()
        ? undefined
        : new KubeClient(loadKubeConfig(kubeconfig), { clock: systemClock, userAgent: 'netdra/doctor' }),
  });
  writeOutput(options, findings, formatFindings);
  if (findings.some(({ level }) => level === 'problem')) process.exitCode = 1;
}

const styles: Record<FindingLevel, 'green' | 'yellow' | 'red'> = { ok: 'green', warning: 'yellow', problem: 'red' };

/** One line for each finding: `problem  NRI: off: there is no socket … → set disable = false …`. */
export function formatFindings(terminal: Terminal, findings: Finding[]): string {
  const lines = findings.map(({ check, level, message, fix }) => {
    const end = fix === undefined ? '' : `; to mend it: ${fix}`;
    return `${terminal.style(styles[level], level.padEnd(7))}  ${terminal.style('bold', check)}: ${message}${end}\n`;
  });
  const count = (wanted: FindingLevel) => findings.filter(({ level }) => level === wanted).length;
  const sum = `${count('problem')} problems, ${count('warning')} warnings\n`;
  return lines.join('') + sum;
}
