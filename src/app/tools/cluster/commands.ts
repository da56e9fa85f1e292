import { Command, Option } from 'commander';
import { defined } from '../../../lib/defined.ts';
import { flagOption } from '../../settings.ts';
import { type OutputOptions, outputOption, runTool, writeOutput } from '../run-tool.ts';
import type { Cluster, ClusterOptions } from './open-cluster.ts';

// Commands load their code when they are run: what is imported above is loaded by the driver, too.

type Options = OutputOptions & ClusterOptions & { driverName: string };

/** `kubectl netdra status`: the driver and its devices on all nodes. Exit code 1 if anything needs attention. */
export function statusCommand(): Command {
  return clusterCommand<{ selector: string }>(
    'status',
    'list the nodes of the cluster with the driver and its devices, and what needs attention; exits with 1 if anything does',
    async (cluster, { selector, ...options }) => {
      const { formatStatus, readStatus } = await import('./status.ts');
      const status = await readStatus(cluster, { driverName: options.driverName, selector });
      writeOutput(options, status, formatStatus);
      if (status.nodes.some(({ problems }) => problems.length > 0)) process.exitCode = 1;
    },
  ).option('-l, --selector <labels>', "labels of the driver's pods", 'app.kubernetes.io/name=netdra');
}

/** `kubectl netdra claims`: the claims with devices of the driver, as the API server has them. */
export function clusterClaimsCommand(): Command {
  return clusterCommand<{ namespace?: string; allNamespaces?: true }>(
    'claims',
    'list the claims that have devices of the driver: their pods and nodes, and what the driver reports of them',
    async (cluster, { namespace = cluster.namespace, allNamespaces, ...options }) => {
      const { formatClusterClaims, readClaims } = await import('./claims.ts');
      const { driverName } = options;
      const place = allNamespaces ? undefined : namespace;
      const claims = await readClaims(cluster, { driverName, namespace: place });
      const where = place === undefined ? 'in the cluster' : `in namespace ${place}; -A shows all namespaces`;
      writeOutput(options, claims, (terminal) =>
        claims.length === 0
          ? `no claim has devices of ${driverName} ${where}\n`
          : formatClusterClaims(terminal, claims),
      );
    },
  )
    .option('-n, --namespace <name>', "namespace of the claims (default: that of the kubeconfig's context)")
    .option('-A, --all-namespaces', 'claims of all namespaces');
}

/** A read-only command that asks the API server. */
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
