import type { V1Pod } from '@kubernetes/client-node';
import { Cluster } from '../../../src/cli/cluster/open-cluster.ts';
import type { ExecResult } from '../../../src/cli/cluster/pod-exec.ts';
import { formatStatus, readStatus } from '../../../src/cli/cluster/status.ts';
import { ApiServer, type ApiServerOptions } from '../../doubles/api-server.ts';
import { kubeConfigOf } from '../../doubles/kube.ts';
import { buildPod, testDriver } from '../../doubles/objects.ts';
import { plainTerminal } from './plain-terminal.ts';

export const options = { driverName: testDriver, selector: 'app.kubernetes.io/name=netdra' };

/** The double has no containers: what they answer to a command, and their logs. */
class ClusterWithPods extends Cluster {
  readonly commands: string[] = [];
  answer: ExecResult = { exitCode: 0, stdout: '{}', stderr: '' };
  log = '';

  override async exec(...[pod, command]: Parameters<Cluster['exec']>): Promise<ExecResult> {
    this.commands.push(`${pod.name} ${pod.container}: ${command.join(' ')}`);
    return command.includes('log') ? { exitCode: 0, stdout: this.log, stderr: '' } : this.answer;
  }

  /** As the kubelet: the limit counts from the first line of the tail. */
  override async readLog(...[, query]: Parameters<Cluster['readLog']>): Promise<string> {
    const { previous, tailLines = Number.POSITIVE_INFINITY, limitBytes = Number.POSITIVE_INFINITY } = query;
    if (previous !== undefined) throw new Error('previous terminated container not found');
    const lines = this.log.split(/(?<=\n)/);
    return lines.slice(-Number(tailLines)).join('').slice(0, Number(limitBytes));
  }
}

/** A cluster, by default in its state after an installation: no node, no claim. */
export async function startCluster(more: ApiServerOptions = {}) {
  await using stack = new AsyncDisposableStack();
  const api = stack.use(await ApiServer.start(more));
  const cluster = stack.use(new ClusterWithPods(kubeConfigOf(api)));
  const owned = stack.move();
  return {
    api,
    cluster,
    status: () => readStatus(cluster, options),
    statusText: async () => formatStatus(plainTerminal, await readStatus(cluster, options)),
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

export function installOn(
  api: ApiServer,
  nodeName: string,
  status: V1Pod['status'] = ready,
  driverName = testDriver,
): void {
  const pod = buildPod(`netdra-${nodeName}-${driverName}`, { namespace: 'netdra', nodeName });
  const labels = { 'app.kubernetes.io/name': 'netdra', 'app.kubernetes.io/version': '0.1.0' };
  const image = 'registry:5000/netdra:0.2.0@sha256:0123';
  const containers = [{ name: 'driver', image, args: ['run', `--driver-name=${driverName}`] }];
  api.create({ ...pod, metadata: { ...pod.metadata, labels }, spec: { ...pod.spec, containers }, status });
}

const ready: V1Pod['status'] = { phase: 'Running', conditions: [{ type: 'Ready', status: 'True' }] };
