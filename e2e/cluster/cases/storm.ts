import { setTimeout as sleep } from 'node:timers/promises';
import type { V1ContainerState, V1Pod } from '@kubernetes/client-node';
import { describe, expect, it } from 'vitest';
import type { Cluster } from '../cluster.ts';
import { metadataRoots } from '../container-view.ts';
import type { GetCluster } from '../describe-cluster.ts';
import type { NodePart, RealNode } from '../node/real-node.ts';
import { createPodWithClaim, testPod } from '../objects.ts';
import { faultPods } from './faults.ts';

/** Time for pods to run after the last fault: a driver that was killed before is restarted after 10 s, then 20 s. */
const recovery = { timeout: 240_000, interval: 500 };
/** `PODSxROUNDS`; docs/reliability.md describes the long form. */
const size =
  /^(\d+)x(\d+)$/
    .exec(process.env.NETDRA_STORM ?? '24x1')
    ?.slice(1)
    .map(Number) ?? [];
const [podCount = 24, rounds = 1] = size;
/** Pods without a VF, to see how the same faults affect them. */
const othersCount = Math.ceil(podCount / 4);
/** The parts killed in a round, and how long after the previous fault. */
const faults: readonly { afterMs: number; parts: NodePart[] }[] = [
  { afterMs: 4_000, parts: ['driver'] },
  { afterMs: 5_000, parts: ['kubelet'] },
  { afterMs: 5_000, parts: ['container runtime'] },
  { afterMs: 8_000, parts: ['driver', 'kubelet', 'container runtime'] },
];
/** Exit code of the test's container if it started without its VF or its metadata. */
const withoutDevice = 42;

/** Pods that must neither fail nor start without their VF, whatever is killed while they are created. */
export function describeStorm(get: GetCluster, getNode: () => RealNode): void {
  describe('pods in a storm of faults', { tags: 'newest' }, () => {
    const timeout = rounds * 30 * 60_000;
    it(`no pod fails or starts without its VF: ${podCount} pods, ${rounds} times`, { timeout }, async () => {
      const { cluster } = get();
      for (let round = 0; round < rounds; round++) {
        // A new pod has no restart delay from earlier faults, which would slow down its recovery from the next ones.
        await cluster.restartDriver();
        const [pods, others] = await Promise.all([
          createPods(cluster, podCount, round),
          createOthers(cluster, othersCount, round),
        ]);
        for (const { afterMs, parts } of faults) {
          await sleep(afterMs);
          await getNode().crash(...parts);
        }
        // On two processors a pod takes a second or more from creation to its end.
        const settled = { ...recovery, timeout: recovery.timeout + podCount * 3_000 };
        await expect.poll(() => unsettled(cluster, pods), settled).toEqual([]);
        expect(await violations(cluster)).toEqual([]);
        const cutOff = await countCutOff(cluster, pods);
        // What the runtime was doing when it or the kubelet was killed is lost, regardless of netdra.
        console.log(
          `starts cut off: ${cutOff} of ${podCount} pods with a VF, ${await countCutOff(cluster, others)} of ${othersCount} without`,
        );
        await cluster.removeWithClaims([...pods, ...others].map(({ name }) => name));
        await get().expectRestored();
      }
    });

    it(`${faultPods} pods survive a driver outage of 20 s and a runtime restart, and delay no other pods`, async () => {
      const { cluster } = get();
      const node = getNode();
      const pods = await createPods(cluster, faultPods, 0, 'Never');
      const started = async () => faultPods - (await unsettled(cluster, pods)).length;
      await expect.poll(started, { ...recovery, interval: 50 }).toBeGreaterThan(2);
      const kubectl = (...args: string[]) => node.kubectl(...args, '--namespace', cluster.target.driverNamespace);
      const restrict = (value: string) =>
        kubectl(
          'patch',
          'daemonset/netdra',
          '--patch',
          `{"spec":{"template":{"spec":{"nodeSelector":{"away":${value}}}}}}`,
        );
      expect(restrict('"yes"')).toContain('patched');
      // It may end by itself meanwhile, since it is no longer wanted on this node.
      node.killDriver();
      await expect.poll(() => node.driverPids(), recovery).toEqual([]);
      await sleep(10_000);
      await node.crash('container runtime');
      await sleep(10_000);
      await cluster.create(testPod(cluster, 'other', {}));
      const createdAtMs = performance.now();
      expect(restrict('null')).toContain('patched');
      await expect.poll(() => node.driverPids().length, recovery).toBe(1);
      const isRunning = async () => (await cluster.find<V1Pod>('Pod', 'other'))?.status?.phase;
      await expect.poll(isRunning, { timeout: 60_000, interval: 100 }).toBe('Running');
      const seconds = (performance.now() - createdAtMs) / 1_000;
      console.log(`a pod without claims, created while the driver was gone, ran after ${seconds.toFixed(1)} s`);
      await expect.poll(() => unsettled(cluster, pods), recovery).toEqual([]);
      expect(await violations(cluster)).toEqual([]);
      expect(await countCutOff(cluster, pods)).toBe(0);
    });
  });
}

interface StormPod {
  name: string;
  restartPolicy: 'Always' | 'Never';
}

/** Each container checks its devices when it starts. In pods that are never restarted it ends then. */
async function createPods(cluster: Cluster, count: number, round: number, only?: 'Never'): Promise<StormPod[]> {
  const pods = Array.from({ length: count }, (_, index): StormPod => {
    return { name: `storm-${round}-${index}`, restartPolicy: only ?? (index % 4 === 0 ? 'Always' : 'Never') };
  });
  await Promise.all(
    pods.map(async ({ name, restartPolicy }, index) => {
      const address = `198.18.${round}.${index + 1}`;
      const config = { interfaceName: 'net1', addresses: [`${address}/24`] };
      const file = `${metadataRoots.v1}/resourceclaims/${name}/vf/${cluster.target.driver}-metadata.json`;
      const check = `grep -q '"${address}/24"' ${file} && ip -o addr show net1 | grep -q ' ${address}/24 ' || exit ${withoutDevice}`;
      const then = restartPolicy === 'Always' ? 'trap "exit 0" TERM; while :; do sleep 3600 & wait $!; done' : 'exit 0';
      const containers = [{ name: 'main', command: ['sh', '-c', `${check}; ${then}`] }];
      const policy = restartPolicy === 'Always' ? { restartPolicy } : {};
      await createPodWithClaim(cluster, name, [{ name: 'vf', config }], { containers, ...policy });
    }),
  );
  return pods;
}

/** Pods without a claim: they show how the same faults affect any pod. */
async function createOthers(cluster: Cluster, count: number, round: number): Promise<Pick<StormPod, 'name'>[]> {
  const pods = Array.from({ length: count }, (_, index) => ({ name: `other-${round}-${index}` }));
  const containers = [{ name: 'main', command: ['true'] }];
  await Promise.all(pods.map(({ name }) => cluster.create(testPod(cluster, name, { containers }))));
  return pods;
}

/** Number of pods that failed because the kubelet or the runtime was killed while starting them. */
async function countCutOff(cluster: Cluster, pods: readonly Pick<StormPod, 'name'>[]): Promise<number> {
  const found = await cluster.list<V1Pod>('Pod');
  return found.filter((pod) => pods.some(({ name }) => name === pod.metadata?.name) && isCutOff(pod)).length;
}

/** Judged by messages of containerd and the kubelet, which contain nothing of ours. */
function isCutOff(pod: V1Pod | undefined): boolean {
  const { status } = pod ?? {};
  const { reason, message = '' } = status?.containerStatuses?.[0]?.state?.terminated ?? {};
  const isFailed = reason === 'ContainerStatusUnknown' || /context canceled|^Unknown$/.test(message || (reason ?? ''));
  return (status?.phase === 'Failed' && isFailed) || isLeftCreated(pod);
}

/** A kubelet that creates another sandbox does so within this time. */
const leftCreatedMs = 60_000;

/**
 * Whether the container was created and not started before its sandbox ended. For a pod that is never restarted the kubelet
 * creates no second sandbox then, and the pod stays Pending until it is deleted. Source: Kubernetes 1.34
 * `kuberuntime_manager.go`, `computePodActions`.
 */
function isLeftCreated(pod: V1Pod | undefined): boolean {
  const { spec, status } = pod ?? {};
  const { containerID, state } = status?.containerStatuses?.[0] ?? {};
  const isCreated = containerID !== undefined && state?.waiting !== undefined && state.waiting.reason === undefined;
  const sandbox = status?.conditions?.find(({ type }) => type === 'PodReadyToStartContainers');
  const isLeft =
    sandbox?.status === 'False' && Date.now() - new Date(sandbox.lastTransitionTime ?? 0).getTime() > leftCreatedMs;
  return spec?.restartPolicy === 'Never' && status?.phase === 'Pending' && isCreated && isLeft;
}

/** Pods that have not reached their expected final state, with their state as the kubelet reports it. */
async function unsettled(cluster: Cluster, pods: readonly StormPod[]): Promise<string[]> {
  const found = await cluster.list<V1Pod>('Pod');
  return pods.flatMap(({ name, restartPolicy }) => {
    const pod = found.find(({ metadata }) => metadata.name === name);
    const { status } = pod ?? {};
    const wanted = restartPolicy === 'Always' ? 'Running' : 'Succeeded';
    const isReady = restartPolicy === 'Never' || status?.containerStatuses?.every(({ ready }) => ready);
    if ((status?.phase === wanted && isReady) || isCutOff(pod)) return [];
    return [`${name} ${restartPolicy} ${status?.phase} ${JSON.stringify(status?.containerStatuses?.[0]?.state)}`];
  });
}

/** Pods that failed, containers that started without their VF, and sandboxes that the driver refused. */
async function violations(cluster: Cluster): Promise<string[]> {
  const pods = await cluster.list<V1Pod>('Pod');
  const failed = pods.flatMap((pod) => {
    const { status } = pod;
    const { state, lastState } = status?.containerStatuses?.[0] ?? {};
    const isWithout = [state, lastState].some(
      (each?: V1ContainerState) => each?.terminated?.exitCode === withoutDevice,
    );
    return (status?.phase === 'Failed' && !isCutOff(pod)) || isWithout
      ? [`${pod.metadata?.name} ${JSON.stringify([status?.phase, state, lastState])}`]
      : [];
  });
  const refused = (await cluster.events()).filter(
    ({ reason, note }) => reason === 'FailedCreatePodSandBox' && /\bNRI\b/i.test(note),
  );
  return [...failed, ...refused.map(({ note }) => note)];
}
