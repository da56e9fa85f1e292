import { claimName } from '../../framework/metadata/index.ts';
import { NetdraError } from '../../lib/errors.ts';
import { type DriverPodsOptions, readDriverPods } from './driver-pods.ts';
import type { Cluster } from './open-cluster.ts';
import type { ExecResult } from './pod-exec.ts';
import { devicesOf } from './status.ts';

/**
 * Runs a command of netdra in the driver's container of a node.
 * @throws NetdraError `no-driver-pod`, `exec-failed`, `list-forbidden`; KubeError
 */
export async function runOnNode(
  cluster: Cluster,
  options: DriverPodsOptions,
  node: string,
  args: string[],
): Promise<ExecResult> {
  const pods = await readDriverPods(cluster, options);
  const pod = pods.get(node);
  if (pod === undefined) {
    const hint = `nodes with such a pod: ${[...pods.keys()].sort().join(', ') || 'none'}`;
    throw new NetdraError('no-driver-pod', `no pod of ${options.driverName} is on node ${node}`, { hint });
  }
  return await cluster.exec(pod, ['netdra', ...args]);
}

/**
 * Parses the name of a claim.
 * @param text name of a claim, or `namespace/name`, as tables show it
 * @throws NetdraError `claim-invalid`
 */
export function parseClaim(text: string, namespace: string): { namespace: string; name: string } {
  const [, given = namespace, name] = /^(?:([a-z0-9-]+)\/)?([a-z0-9][a-z0-9.-]*)$/.exec(text) ?? [];
  if (name !== undefined) return { namespace: given, name };
  throw new NetdraError('claim-invalid', `${JSON.stringify(text)} is neither the name of a claim nor namespace/name`);
}

/** Returns the name of the node to which a claim's devices belong. @throws NetdraError `claim-not-allocated`; KubeError */
export async function nodeOfClaim(
  cluster: Cluster,
  driverName: string,
  claim: { namespace: string; name: string },
): Promise<string> {
  const [device] = devicesOf(driverName, await cluster.readClaim(claim.namespace, claim.name));
  // A pool has the name of its node.
  if (device !== undefined) return device.pool;
  const name = claimName(claim);
  const hint = 'kubectl describe resourceclaim shows whether it is allocated';
  throw new NetdraError('claim-not-allocated', `claim ${name} has no device of ${driverName}`, { claim: name, hint });
}
