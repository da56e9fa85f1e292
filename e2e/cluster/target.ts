import * as z from 'zod';
import { NetdraError } from '../../src/errors.ts';

const absolutePath = z.string().startsWith('/');

/** A cluster that the driver is installed in, and what its tests need to know of it. */
export const clusterTargetSchema = z.strictObject({
  /** Path of a kubeconfig whose user may create namespaces, classes and pods that mount host paths. */
  kubeconfig: absolutePath,
  driver: z.string().min(1),
  /** Where the pods of the driver are. */
  driverNamespace: z.string().min(1),
  /** What the containers of the tests run: e2e/kind/consumer.Dockerfile. */
  consumerImage: z.string().min(1),
  /** The chart's classes, for interfaces and for DPDK. */
  classes: z.strictObject({ kernel: z.string().min(1), dpdk: z.string().min(1) }),
  /** Whether the VFs are simulated: what DPDK does with them, and which can be taken away, depends on it. */
  simulated: z.boolean(),
  /** Folders on the nodes, as the chart's values have them. */
  paths: z.strictObject({ kubeletPlugins: absolutePath, cdi: absolutePath }),
  /** Whether the API server refuses claims that set what only classes may, by the chart's policies. */
  admissionPolicies: z.boolean(),
  /** Whether what a failed test made stays for a look. */
  keepFailed: z.boolean(),
  /** How long anything may take, default 60 s. */
  timeoutMs: z.number().positive().optional(),
  /** `1.36`: older servers are refused. */
  oldestKubernetes: z.string().regex(/^\d+\.\d+$/),
});
export type ClusterTarget = z.infer<typeof clusterTargetSchema>;

/** How the target gets to the process of the tests. */
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
