import * as z from 'zod';
import { NetdraError } from '../../src/lib/errors.ts';

const absolutePath = z.string().startsWith('/');

/** A cluster with the driver installed, and the facts that its tests need. */
export const clusterTargetSchema = z.strictObject({
  /** Path of a kubeconfig whose user may create namespaces, classes and pods that mount host paths. */
  kubeconfig: absolutePath,
  driver: z.string().min(1),
  /** Namespace of the driver's pods. */
  driverNamespace: z.string().min(1),
  /** Image of the test containers: e2e/kind/consumer.Dockerfile. */
  consumerImage: z.string().min(1),
  /** The chart's classes, for interfaces and for DPDK. */
  classes: z.strictObject({ kernel: z.string().min(1), dpdk: z.string().min(1) }),
  /** Whether the VFs are simulated: affects how DPDK uses them, and which can be removed. */
  simulated: z.boolean(),
  /** Folders on the nodes, as in the chart's values. */
  paths: z.strictObject({ kubeletPlugins: absolutePath, cdi: absolutePath }),
  /** Whether the API server refuses claims with settings reserved for classes, by the chart's policies. */
  admissionPolicies: z.boolean(),
  /** Whether the objects of a failed test are kept for inspection. */
  keepFailed: z.boolean(),
  /** The container engine that runs the nodes, as in kind. Absent for other nodes. */
  engine: z.string().min(1).optional(),
  /** Timeout for each step, default 60 s. */
  timeoutMs: z.number().positive().optional(),
  /** `1.36`: older servers are refused. */
  oldestKubernetes: z.string().regex(/^\d+\.\d+$/),
});
export type ClusterTarget = z.infer<typeof clusterTargetSchema>;

/** Passes the target to the process of the tests. */
export const targetVariable = 'NETDRA_CLUSTER';

/** @throws NetdraError `target-missing` */
export function readTarget(env: NodeJS.ProcessEnv): ClusterTarget {
  const result = clusterTargetSchema.safeParse(parseJson(env[targetVariable]));
  if (result.success) return result.data;
  throw new NetdraError('target-missing', `no cluster is named in ${targetVariable}`, {
    cause: result.error,
    hint: 'npm run e2e:kind makes one, or takes the one of a kubeconfig, and starts the tests',
  });
}

function parseJson(text: string | undefined): unknown {
  try {
    return JSON.parse(text ?? '');
  } catch {
    return undefined;
  }
}
