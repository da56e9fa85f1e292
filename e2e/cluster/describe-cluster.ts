import { afterAll, afterEach, beforeAll, describe } from 'vitest';
import { describeDpdk } from './cases/dpdk.ts';
import { describeKep5304 } from './cases/kep-5304.ts';
import { describeTrouble } from './cases/trouble.ts';
import { Cluster, type Kind } from './cluster.ts';
import { ContainerView } from './container-view.ts';
import { NodeFiles } from './node-files.ts';
import type { ClusterTarget } from './target.ts';

/** What the cases are given. */
export interface TestCluster {
  cluster: Cluster;
  nodeFiles: NodeFiles;
  view(pod: string, container?: string): ContainerView;
}

/** Gives the cases their cluster, once it is there. */
export type GetCluster = () => TestCluster;

/** A cluster, and what has to go after the tests besides what they made themselves. */
export interface OpenCluster {
  target: ClusterTarget;
  close?: () => Promise<void>;
}

const kinds: Kind[] = ['Pod', 'ResourceClaim', 'ResourceClaimTemplate'];

/** What there is to test: known before the cluster is there. */
export type CaseOptions = Pick<ClusterTarget, 'simulated' | 'admissionPolicies'>;

/**
 * All cases that need a cluster's API only.
 * @param describeMore cases that need more, on the same cluster
 */
export function describeCluster(
  title: string,
  open: () => Promise<OpenCluster>,
  options: CaseOptions,
  describeMore: (get: GetCluster) => void = () => undefined,
): void {
  describe(title, () => {
    const stack = new AsyncDisposableStack();
    let test: TestCluster;
    let isKept = false;

    beforeAll(async () => {
      const { target, close } = await open();
      if (close !== undefined) stack.defer(close);
      const cluster = await Cluster.open(target);
      stack.defer(() => (isKept ? cluster.leave() : cluster[Symbol.asyncDispose]()));
      const nodeFiles = await NodeFiles.open(cluster);
      test = { cluster, nodeFiles, view: (pod, container) => new ContainerView(cluster, pod, container) };
    });
    afterEach(async ({ task }) => {
      isKept ||= test.cluster.target.keepFailed && task.result?.state === 'fail';
      if (!isKept) await removeAll(test.cluster);
    });
    afterAll(async () => {
      await stack.disposeAsync();
    });

    const get = () => test;
    describeKep5304(get, options);
    describeDpdk(get, options);
    describeTrouble(get, options);
    describeMore(get);
  });
}

/** Removes what a test has left, so that the next one finds all VFs free. */
async function removeAll(cluster: Cluster): Promise<void> {
  for (const kind of kinds) {
    for (const { metadata } of await cluster.list<object>(kind)) {
      if (metadata.name !== NodeFiles.podName) await cluster.remove(kind, metadata.name);
    }
  }
}
