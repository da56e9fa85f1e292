import { afterAll, afterEach, beforeAll, describe } from 'vitest';
import { describeAdmission } from './cases/admission.ts';
import { describeDpdk } from './cases/dpdk.ts';
import { describeExamples } from './cases/examples.ts';
import { describeKep5304 } from './cases/kep-5304.ts';
import { describePods } from './cases/pods.ts';
import { describeRequests } from './cases/requests.ts';
import { describeTrouble } from './cases/trouble.ts';
import { Cluster } from './cluster.ts';
import { ContainerView } from './container-view.ts';
import { NodeFiles } from './node-files.ts';
import type { ClusterTarget } from './target.ts';

/** Context of the cases. */
export interface TestCluster {
  cluster: Cluster;
  nodeFiles: NodeFiles;
  view(pod: string, container?: string): ContainerView;
  /** Waits until removed pods have left nothing on the node; does nothing where nodes cannot be inspected. */
  expectRestored(): Promise<void>;
}

/** Gives the cases their cluster; valid once it is open. */
export type GetCluster = () => TestCluster;

/** A cluster, with the clean-up after the tests besides that of their own objects. */
export interface OpenCluster {
  target: ClusterTarget;
  close?: () => Promise<void>;
  /**
   * For clusters whose nodes can be inspected: called before the first test. The resulting function is called after
   * each test, when the test's objects are removed, and throws if anything of them is left on the node.
   */
  openCheck?: () => Promise<() => Promise<void>>;
}

/** Selects the cases to run: known before the cluster exists. */
export type CaseOptions = Pick<ClusterTarget, 'simulated' | 'admissionPolicies'>;

/**
 * All cases that need only a cluster's API.
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
      const { target, close, openCheck } = await open();
      if (close !== undefined) stack.defer(close);
      const cluster = await Cluster.open(target);
      stack.defer(() => (isKept ? cluster.leave() : cluster[Symbol.asyncDispose]()));
      const nodeFiles = await NodeFiles.open(cluster);
      const view = (pod: string, container?: string) => new ContainerView(cluster, pod, container);
      test = { cluster, nodeFiles, view, expectRestored: (await openCheck?.()) ?? (async () => undefined) };
    });
    afterEach(async ({ task }) => {
      isKept ||= test.cluster.target.keepFailed && task.result?.state === 'fail';
      // A case that asked the API server only has left nothing.
      if (isKept || !test.cluster.hasCreated) return;
      // All VFs are free for the next test.
      await test.cluster.removeAll([NodeFiles.podName]);
      await test.expectRestored();
    });
    afterAll(async () => {
      await stack.disposeAsync();
    });

    const get = () => test;
    describeKep5304(get, options);
    describeDpdk(get, options);
    describeTrouble(get, options);
    describePods(get);
    describeRequests(get);
    describeAdmission(get, options);
    describeExamples(get);
    describeMore(get);
  });
}
