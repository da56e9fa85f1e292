import { existsSync } from 'node:fs';
import { Argument, Command } from 'commander';
import { driverDirs } from '../instance/directories.ts';
import type { InstanceFacts } from '../instance/instance-file.ts';
import { parseAbsolutePath } from '../instance/parse-flags.ts';
import { argument, type FlagName, flagOption, type Settings } from '../instance/settings.ts';
import { defined } from '../lib/defined.ts';
import { NetdraError } from '../lib/errors.ts';
import type { Shell } from './completion.ts';
import type { ConvertOptions } from './convert/convert.ts';
import { formatFindings } from './finding.ts';
import { type OutputOptions, outputOption, problemsOnlyOption, runTool, writeOutput } from './run-tool.ts';
import { openTerminal, type Terminal } from './terminal.ts';

// Commands import their code when they run: the driver's process loads all imports above.

/** Options of a tool: the output format, and flags of `netdra run` with the driver's values as defaults. */
type ToolOptions<Name extends FlagName> = OutputOptions & Pick<Settings, Name> & { instance?: InstanceFacts };

type ValidateCommandOptions = Pick<Settings, 'driverName' | 'openClaimFields'> & {
  output: OutputOptions['output'] | 'github' | 'sarif';
  strict?: true;
};

const criSockets = ['/run/containerd/containerd.sock', '/run/crio/crio.sock'];

/** Returns `netdra doctor`, which diagnoses this node. Its exit code is 1 if anything keeps the driver from working. */
export function doctorCommand(): Command {
  const command = toolCommand(
    'doctor',
    'diagnose this node (read-only)',
    [
      'driverName',
      'kubeconfig',
      'kubeletPluginsDir',
      'kubeletRegistryDir',
      'cdiDir',
      'stateDir',
      'procSysDir',
      'nriSocket',
      'nodeView',
      'policyObjects',
      'sriovOperator',
      'simulate',
      'cniUses',
      'cniBinDirs',
    ],
    async (options) => {
      const { runDoctor } = await import('./doctor.ts');
      const { readCriRuntime } = await import('./cri-runtime.ts');
      const { probeNri } = await import('./nri-probe.ts');
      const { kubeletCheckpoint } = await import('../node/inventory/index.ts');
      const { hasServiceAccount, KubeClient, openApiAccess } = await import('../framework/kube/index.ts');
      const { systemClock: clock } = await import('../lib/clock.ts');
      const { claimedFunctions } = await import('../instance/stored-claims.ts');
      const { kubeconfig, simulate } = options;
      const { criSocket, netnsDir } = command.opts<{ criSocket?: string; netnsDir: string }>();
      const findings = await runDoctor({
        ...options,
        ...driverDirs(options),
        checkpoint: kubeletCheckpoint,
        claimed: () => claimedFunctions(driverDirs(options)),
        netnsDir,
        procDir: '/proc',
        sysDir: '/sys',
        simulated: simulate !== undefined,
        criSockets: criSocket === undefined ? criSockets : [criSocket],
        readCri: readCriRuntime,
        probeNri,
        openKube: async () =>
          !kubeconfig && !hasServiceAccount()
            ? undefined
            : new KubeClient(await openApiAccess(kubeconfig), { clock, userAgent: 'netdra/doctor' }),
      });
      const { problemsOnly } = command.opts<{ problemsOnly?: true }>();
      const shown = problemsOnly ? findings.filter(({ level }) => level !== 'ok') : findings;
      await writeOutput(options, shown, formatFindings);
      if (findings.some(({ level }) => level === 'problem')) process.exitCode = 1;
    },
  );
  return command
    .addOption(problemsOnlyOption())
    .option('--cri-socket <path>', `CRI socket of the runtime (default: ${criSockets.join(', or ')})`)
    .option('--netns-dir <path>', "where the runtime mounts pods' network namespaces", '/var/run/netns');
}

/** Returns `netdra inventory`, which lists the offered devices, and the reasons why others are not offered. */
export function inventoryCommand(): Command {
  return toolCommand(
    'inventory',
    'list the offered devices of this node, and why others are excluded (read-only)',
    ['driverName', 'kubeletPluginsDir', 'stateDir', 'inventoryPolicy', 'simulate'],
    async (options) => {
      const { formatInventory, takeInventory } = await import('./inventory.ts');
      const { openStored } = await import('../instance/stored-claims.ts');
      const { DevicePlugins, kubeletCheckpoint } = await import('../node/inventory/index.ts');
      const { RtnlConnection } = await import('../node/netlink/index.ts');
      const dirs = driverDirs(options);
      const { driverName: driver, inventoryPolicy: policyPath, simulate, instance } = options;
      // The running driver cannot tell which devices another policy would offer.
      const { askDriver } = await import('../instance/tool-socket.ts');
      const answer = policyPath === undefined ? await askDriver(dirs.dataDir, 'inventory') : undefined;
      if (answer !== undefined) return await writeOutput(options, JSON.parse(answer), formatInventory);
      using stored = openStored(dirs);
      using connection = RtnlConnection.open();
      const view = await takeInventory({
        driver,
        connection,
        devicePlugins: new DevicePlugins(kubeletCheckpoint),
        sysfsRoot: '/sys',
        claims: stored.claims,
        unrestored: stored.unrestored,
        ...defined({ policyPath, simulatedIn: simulate && dirs.stateDir, state: instance }),
      });
      await writeOutput(options, view, formatInventory);
    },
  );
}

/** Returns `netdra claims`, which lists prepared claims and where their devices are. */
export function claimsCommand(): Command {
  return toolCommand(
    'claims',
    'list the claims prepared on this node, and where their devices are (read-only)',
    ['driverName', 'kubeletPluginsDir', 'stateDir', 'attributesDir', 'downwardApiDir'],
    async (options) => {
      const { formatClaims, viewClaims } = await import('./claims.ts');
      const { inspectClaim } = await import('../framework/metadata/index.ts');
      const { openStoredByDriver } = await import('../instance/stored-claims.ts');
      const { RtnlConnection } = await import('../node/netlink/index.ts');
      const { driverName, attributesDir, downwardApiDir } = options;
      const dirs = { ...driverDirs(options), attributesDir, downwardApiDir };
      using host = RtnlConnection.open();
      using stored = openStoredByDriver(dirs);
      const { claims, records } = stored;
      const inspect = (claim: { namespace: string; name: string }) => inspectClaim(driverName, dirs, claim, records);
      const view = await viewClaims({ claims, host, inspect });
      await writeOutput(options, view, formatClaims);
    },
  );
}

/** Returns `netdra metadata`, which shows the metadata that containers get. Its exit code is 1 if the metadata has a fault. */
export function metadataCommand(): Command {
  return toolCommand(
    'metadata',
    'show and check one metadata file, or all metadata files of a claim prepared on this node',
    ['driverName', 'kubeletPluginsDir', 'stateDir', 'attributesDir', 'downwardApiDir'],
    async (options, subject = '') => {
      const { findClaim, formatClaimFiles, formatFile, isGood, viewClaimFiles, viewFile } = await import(
        './metadata.ts'
      );
      const { driverName, attributesDir, downwardApiDir } = options;
      const show = async <View extends Parameters<typeof isGood>[0]>(
        view: View,
        format: (terminal: Terminal, view: View) => string,
      ) => {
        await writeOutput(options, view, format);
        if (!isGood(view)) process.exitCode = 1;
      };
      // Names of namespaces and claims contain no slashes and no leading dot.
      const isClaim = /^[a-z0-9][^/]*(\/[^/]+)?$/.test(subject) && !existsSync(subject);
      if (!isClaim) return await show(await viewFile(subject), formatFile);
      const dirs = { ...driverDirs(options), attributesDir, downwardApiDir };
      const { openStoredByDriver } = await import('../instance/stored-claims.ts');
      using stored = openStoredByDriver(dirs);
      const claim = subject.includes('/') ? subject : findClaim(stored.claims, subject);
      await show(await viewClaimFiles(driverName, dirs, claim, stored.records), formatClaimFiles);
    },
  ).argument(
    '<path|claim>',
    'path of a metadata file, or a claim as namespace/name; the name is enough if only one claim on this node has it',
  );
}

/** Returns `netdra log`, which prints the latest log lines of the running driver. */
export function logCommand(): Command {
  const command = new Command('log').description("print the last megabyte of the running driver's log, at level debug");
  const flags = ['driverName', 'kubeletPluginsDir'] as const;
  for (const flag of flags) command.addOption(flagOption(flag));
  return command.action(() =>
    runTool(async () => {
      const { askDriver } = await import('../instance/tool-socket.ts');
      const { dataDir } = driverDirs(await withInstance<(typeof flags)[number]>(command));
      const text = await askDriver(dataDir, 'log');
      if (text !== undefined) return void process.stdout.write(text);
      throw new NetdraError('driver-not-running', 'no driver runs on this node', {
        hint: 'for the log of a driver that has ended: kubectl logs --previous',
      });
    }),
  );
}

/** Returns `netdra seccomp`, which prints or installs the driver's seccomp profile. */
export function seccompCommand(): Command {
  return new Command('seccomp')
    .description("print the driver's seccomp profile, or install it where the kubelet looks for profiles")
    .option(
      '--install <path>',
      "absolute path of the file to write, below the kubelet's seccomp directory",
      argument(parseAbsolutePath),
    )
    .action(({ install }: { install?: string }) =>
      runTool(async () => {
        const { installProfile, profileText } = await import('./seccomp.ts');
        if (install === undefined) process.stdout.write(profileText);
        else installProfile(install);
      }),
    );
}

/**
 * Returns `netdra validate`, which checks files without node and cluster. Its exit code is 1 for a fault, or if there was
 * nothing to check.
 */
export function validateCommand(): Command {
  return new Command('validate')
    .description(
      'check inventory policies, and the VFConfigs in classes, claims and templates, before they are applied',
    )
    .argument('<file...>', 'YAML or JSON, with any number of documents; - for standard input')
    .addOption(outputOption('github', 'sarif'))
    .option('--strict', 'count notes as faults, and report objects skipped because of a misspelled kind or apiVersion')
    .addOption(flagOption('driverName'))
    .addOption(flagOption('openClaimFields'))
    .action((files: string[], options: ValidateCommandOptions) =>
      runTool(async () => {
        const { validateFiles } = await import('./validate.ts');
        const { formatGithub, formatValidation, isValid, sarifOf } = await import('./validate-reports.ts');
        const validation = await validateFiles(files, options);
        const { output } = options;
        if (output === 'github' || output === 'sarif') {
          const { default: packageInfo } = await import('../../package.json', { with: { type: 'json' } });
          const isGithub = output === 'github';
          const report = isGithub ? validation : sarifOf(validation, packageInfo.version);
          await writeOutput({ output: isGithub ? 'table' : 'json' }, report, () => formatGithub(validation));
        } else {
          await writeOutput({ output }, validation, formatValidation);
        }
        if (!isValid(validation)) process.exitCode = 1;
      }),
    );
}

/**
 * Returns `netdra convert`, which converts objects of other SR-IOV stacks. If anything was not converted, prints nothing and
 * exits with 1, unless `--allow-partial` is given.
 */
export function convertCommand(): Command {
  return new Command('convert')
    .description(
      'convert objects of the SR-IOV operator, its device plugin, Multus and other DRA drivers to those of netdra',
    )
    .argument('<file...>', 'YAML or JSON, with any number of documents; - for standard input')
    .addOption(flagOption('driverName'))
    .option('--resource-prefix <domain>', 'RESOURCE_PREFIX that the SR-IOV operator runs with (default: openshift.io)')
    .option('--take-over', 'let netdra create the VFs instead of the SR-IOV operator', false)
    .option(
      '--allow-partial',
      'print the objects that could be converted even if others could not, and exit with 0',
      false,
    )
    .action((files: string[], options: ConvertOptions & { allowPartial: boolean }) =>
      runTool(async () => {
        const { convertFiles } = await import('./convert/convert.ts');
        const { formatRemarks } = await import('./convert/report.ts');
        const conversion = await convertFiles(files, options);
        const errors = openTerminal(process.stderr);
        errors.write(formatRemarks(errors, conversion.remarks));
        if (conversion.isComplete || options.allowPartial) process.stdout.write(conversion.yaml);
        else process.exitCode = 1;
      }),
    );
}

/** Returns `netdra completion`, which prints the script for a shell or, with words, their completions. */
export function completionCommand(...shells: Shell[]): Command {
  const command: Command = new Command('completion')
    .description('print the completion script of a shell, or completions for the given words')
    .addArgument(new Argument('<shell>', 'shell, or kubectl').choices(shells))
    .argument('[word...]', 'words of the command line after the command name; the last word is completed')
    .action((shell: Shell, words: string[]) =>
      runTool(async () => {
        const { completionScripts, completionsOf, formatCompletions } = await import('./completion.ts');
        const { parent } = command;
        if (words.length === 0 || parent === null) process.stdout.write(completionScripts[shell]);
        else process.stdout.write(formatCompletions(completionsOf(parent, words)));
      }),
    );
  return command;
}

/**
 * Creates a read-only command with some of the flags of `netdra run`.
 * @param run runs the command with its options and arguments
 */
function toolCommand<Name extends FlagName>(
  name: string,
  description: string,
  flags: readonly Name[],
  run: (options: ToolOptions<Name>, ...args: string[]) => Promise<void>,
): Command {
  const command = new Command(name)
    .description(description)
    .addOption(outputOption())
    .action(() => runTool(async () => run(await withInstance<Name>(command), ...command.args)));
  for (const flag of flags) command.addOption(flagOption(flag));
  return command;
}

/**
 * Returns a command's options. For a flag that is given neither on the command line nor in the environment, takes the value
 * that the driver of this node uses.
 */
async function withInstance<Name extends FlagName>(command: Command): Promise<ToolOptions<Name>> {
  const { readInstance, settingsHere } = await import('../instance/instance-file.ts');
  const options = command.opts<ToolOptions<Name> & Pick<Settings, 'kubeletPluginsDir' | 'driverName'>>();
  const isGiven = (name: string) => ['cli', 'env'].includes(command.getOptionValueSource(name) ?? '');
  const instance = readInstance(options.kubeletPluginsDir, isGiven('driverName') ? options.driverName : undefined);
  if (instance === undefined) return options;
  const known = command.options.map((option) => option.attributeName()).filter((name) => !isGiven(name));
  const settings = Object.entries(settingsHere(instance)).filter(([name]) => known.includes(name));
  const { readBootId } = await import('../lib/boot-id.ts');
  const isThisBoot = instance.bootId === readBootId();
  const current = { ...instance, hungWrites: isThisBoot ? instance.hungWrites : [] };
  return { ...options, ...Object.fromEntries(settings), instance: current };
}
