import { Command, Option } from 'commander';
import { flagOption } from '../../instance/settings.ts';
import { defined } from '../../lib/defined.ts';
import { type OutputOptions, outputOption, problemsOnlyOption, runTool, writeOutput } from '../run-tool.ts';
import { openTerminal } from '../terminal.ts';
import { defaultDriverNamespace } from './driver-pods.ts';
import type { Cluster, ClusterOptions } from './open-cluster.ts';
import type { ExecResult } from './pod-exec.ts';

// Commands import their code when they run: the driver's process loads all imports above.

type Options = OutputOptions & ClusterOptions & { driverName: string };
type ProblemsOnly = { problemsOnly?: true };

/**
 * Returns `kubectl netdra status`, which shows the driver and its devices on all nodes. Its exit code is 1 if anything needs
 * attention.
 */
export function statusCommand(): Command {
  return podsCommand<ProblemsOnly>(
    'status',
    'list the nodes of the driver with their devices and problems (exit code 1 if there are problems)',
    async (cluster, options) => {
      const { formatStatus, readStatus } = await import('./status.ts');
      const status = await readStatus(cluster, options);
      const nodes = status.nodes.filter(({ problems }) => !options.problemsOnly || problems.length > 0);
      await writeOutput(options, { ...status, nodes }, (terminal) => formatStatus(terminal, status, nodes));
      if (status.nodes.some(({ problems }) => problems.length > 0)) process.exitCode = 1;
    },
  ).addOption(problemsOnlyOption());
}

/** Returns `kubectl netdra doctor NODE`, which runs `netdra doctor` in the driver's pod of a node and takes its exit code. */
export function nodeDoctorCommand(): Command {
  return podsCommand<ProblemsOnly>(
    'doctor',
    'run netdra doctor in the driver pod of a node (same exit code)',
    async (cluster, options, node = '') => {
      const { runOnNode } = await import('./remote.ts');
      const flags = options.problemsOnly ? ['--problems-only'] : [];
      writeResult(await runOnNode(cluster, options, node, ['doctor', `--output=${options.output}`, ...flags]));
    },
  )
    .argument('<node>', 'name of the node')
    .addOption(problemsOnlyOption());
}

/**
 * Returns `kubectl netdra metadata CLAIM`, which runs `netdra metadata` in the driver's pod of the claim's node and takes its
 * exit code.
 */
export function claimMetadataCommand(): Command {
  return podsCommand<{ namespace?: string }>(
    'metadata',
    "show and check a claim's metadata files: runs netdra metadata on its node (same exit code)",
    async (cluster, { namespace = cluster.namespace, ...options }, text = '') => {
      const { nodeOfClaim, parseClaim, runOnNode } = await import('./remote.ts');
      const { claimName } = await import('../../framework/metadata/index.ts');
      const claim = parseClaim(text, namespace);
      const node = await nodeOfClaim(cluster, options.driverName, claim);
      const args = ['metadata', claimName(claim), `--output=${options.output}`];
      writeResult(await runOnNode(cluster, options, node, args));
    },
  )
    .argument('<claim>', 'name of the claim, or namespace/name')
    .addOption(namespaceOption());
}

/** Returns `kubectl netdra bundle`, which collects the data needed to find a fault in a folder. */
export function bundleCommand(): Command {
  return podsCommand<{ out: string }>(
    'bundle',
    "collect the driver's objects, tool output and logs in a new directory, without texts that look like secrets",
    async (cluster, options, ...nodes) => {
      const { makeBundle } = await import('./bundle.ts');
      const bundle = await makeBundle(cluster, { ...options, nodes });
      await writeOutput(options, bundle, (_, { out, files, missing }) =>
        [
          ...missing.map((text) => `missing: ${text}\n`),
          `${files.length} files in ${out}: review them before you pass them on\n`,
        ].join(''),
      );
    },
  )
    .argument('[node...]', 'names of nodes (default: all)')
    .addOption(
      new Option('--out <folder>', 'output directory').default(
        `netdra-bundle-${new Date().toISOString().slice(0, 19).replaceAll(':', '')}`,
        'netdra-bundle-TIME',
      ),
    );
}

function writeResult({ stdout, stderr, exitCode }: ExecResult): void {
  openTerminal(process.stdout).write(stdout);
  openTerminal(process.stderr).write(stderr);
  process.exitCode = exitCode;
}

function namespaceOption(): Option {
  return new Option('-n, --namespace <name>', "namespace (default: that of the kubeconfig's context)");
}

type PodsOptions<More> = More & { selector: string; driverNamespace: string };

/** Creates a command with the options that select the driver's pods. */
function podsCommand<More extends object = object>(
  ...[name, description, run]: Parameters<typeof clusterCommand<PodsOptions<More>>>
): Command {
  return clusterCommand<PodsOptions<More>>(name, description, run)
    .option('-l, --selector <labels>', "labels of the driver's pods", 'app.kubernetes.io/name=netdra')
    .option('--driver-namespace <name>', "namespace of the driver's pods", defaultDriverNamespace);
}

/** Returns `kubectl netdra claims`, which lists the claims with devices of the driver as the API server has them. */
export function clusterClaimsCommand(): Command {
  return clusterCommand<{ namespace?: string; allNamespaces?: true }>(
    'claims',
    'list the claims with devices of the driver, with their pods, nodes and reported status',
    async (cluster, { namespace = cluster.namespace, allNamespaces, ...options }) => {
      const { formatClusterClaims, readClaims } = await import('./claims.ts');
      const { driverName } = options;
      const place = allNamespaces ? undefined : namespace;
      const claims = await readClaims(cluster, { driverName, namespace: place });
      const where = place === undefined ? 'in the cluster' : `in namespace ${place}; -A shows all namespaces`;
      await writeOutput(options, claims, (terminal) =>
        claims.length === 0
          ? `no claim has devices of ${driverName} ${where}\n`
          : formatClusterClaims(terminal, claims),
      );
    },
  )
    .addOption(namespaceOption())
    .option('-A, --all-namespaces', 'list claims of all namespaces');
}

/** Creates a read-only command with the options for access to the API server. */
function clusterCommand<More extends object>(
  name: string,
  description: string,
  run: (cluster: Cluster, options: Options & More, ...args: string[]) => Promise<void>,
): Command {
  const command: Command = new Command(name)
    .description(description)
    .addOption(outputOption())
    .addOption(flagOption('driverName'))
    .addOption(new Option('--kubeconfig <path>', 'kubeconfig file (default: ~/.kube/config)').env('KUBECONFIG'))
    .option('--context <name>', 'context of the kubeconfig (default: the current one)')
    .action(() =>
      runTool(async () => {
        const { openCluster } = await import('./open-cluster.ts');
        const options = command.opts<Options & More>();
        const { kubeconfig, context } = options;
        using cluster = await openCluster(defined({ kubeconfig, context }));
        await run(cluster, options, ...command.args);
      }),
    );
  return command;
}
