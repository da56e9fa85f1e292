import { describe, expect, it } from 'vitest';
import { buildPod } from '../../../doubles/objects.ts';
import { allocated, fromClass } from './driver-bench.ts';
import { bench, refusal, useDriverBench } from './driver-hooks.ts';

useDriverBench();

describe('a claim for several pods', () => {
  const pods = ['pod-b', 'pod-a'].map((name) => buildPod(name));

  it('is rejected with the pod names, and nothing is changed', async () => {
    const claim = allocated('shared', ['dev-1'], { pods, config: [fromClass({ vf: { trust: true } })] });
    expect(await bench.prepare(claim)).toMatchObject(
      refusal(
        'claim-shared',
        'claim default/shared is reserved for 2 pods (pod-a, pod-b), but a VF can be in only one pod',
      ),
    );
    expect(bench.store.claims()).toEqual([]);
    expect(bench.control.calls).toEqual([]);
  });

  it('stays prepared for its first pod until it is no longer reserved for that pod; then passes to the next one', async () => {
    const [first, second] = pods.map(({ metadata }) => metadata.uid);
    const claim = allocated('shared', ['dev-1'], { pods: pods.slice(0, 1) });
    expect(await bench.prepare(claim)).toEqual({ devices: [] });
    const shared = allocated('shared', ['dev-1'], { pods, uid: claim.identity.uid });
    expect(await bench.prepare(shared)).toEqual({ devices: [] });
    expect(bench.store.claim(claim.identity.uid)?.podUids).toEqual([first]);
    const next = [...pods.slice(1), buildPod('pod-c')];
    const passed = allocated('shared', ['dev-1'], { pods: next, uid: claim.identity.uid });
    expect(await bench.prepare(passed)).toEqual({ devices: [] });
    expect(bench.store.claim(claim.identity.uid)?.podUids).toEqual([second]);
  });
});

describe('a claim of a PodGroup', () => {
  const group = { apiGroup: 'scheduling.k8s.io', resource: 'podgroups', name: 'gang', uid: 'gang-uid' };
  /** @param pods that it is reserved for, too */
  const ofGroup = (pods: ReturnType<typeof buildPod>[], uid?: string) => {
    const claim = allocated('shared', ['dev-1'], { pods, ...(uid !== undefined && { uid }) });
    const { status } = claim.object;
    return {
      ...claim,
      object: { ...claim.object, status: { ...status, reservedFor: [...(status?.reservedFor ?? []), group] } },
    };
  };
  const refused = refusal(
    'claim-shared',
    'claim default/shared is reserved for podgroups.scheduling.k8s.io gang, but a VF can be only in a pod that its claim is reserved for',
  );

  it.each([
    { what: 'alone', pods: [] },
    { what: 'in addition to a pod', pods: [buildPod('pod-a')] },
  ])('is rejected if it is reserved for the PodGroup $what, and nothing is changed', async ({ pods }) => {
    expect(await bench.prepare(ofGroup(pods))).toMatchObject(refused);
    expect([bench.store.claims(), bench.control.calls]).toEqual([[], []]);
  });

  it('stays prepared for its pod, and is rejected once it is reserved for no pod', async () => {
    const pod = buildPod('pod-a');
    const claim = allocated('shared', ['dev-1'], { pods: [pod] });
    const { uid } = claim.identity;
    expect(await bench.prepare(claim)).toEqual({ devices: [] });
    expect(await bench.prepare(ofGroup([pod], uid))).toEqual({ devices: [] });
    expect(await bench.prepare(ofGroup([], uid))).toMatchObject(refused);
    expect(bench.store.claim(uid)?.podUids).toEqual([pod.metadata.uid]);
  });
});
