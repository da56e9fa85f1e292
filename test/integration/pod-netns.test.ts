import { describe, expect, it } from 'vitest';
import type { PodSandbox } from '../../nri/index.ts';
import { openPodNetns } from '../../src/sandbox/pod-netns.ts';
import { TestNetns } from '../doubles/netns.ts';

function podWith(namespaces: PodSandbox['namespaces']): PodSandbox {
  return {
    id: 'sandbox',
    name: 'app',
    uid: 'pod-uid',
    namespace: 'default',
    labels: {},
    annotations: {},
    runtimeHandler: '',
    pid: 0,
    ips: [],
    cgroupParent: '',
    cgroupsPath: '',
    namespaces,
  };
}

const refusal = /pod default\/app uses the host's network, where it cannot get a VF of its own/;

describe('openPodNetns', () => {
  it("refuses a pod without a network namespace entry: containerd's host-network pods", () => {
    expect(() => openPodNetns(podWith([{ type: 'pid', path: '/proc/1/ns/pid' }]))).toThrow(refusal);
  });

  it("refuses an entry that is the host's namespace: CRI-O's host-network pods", () => {
    expect(() => openPodNetns(podWith([{ type: 'network', path: '/proc/self/ns/net' }]))).toThrow(refusal);
  });

  it("opens the pod's own namespace", () => {
    using own = new TestNetns();
    using netns = openPodNetns(podWith([{ type: 'network', path: own.path }]));
    expect(netns.path).toBe(own.path);
    expect(netns.isHost()).toBe(false);
  });

  it('says which path is no namespace any more', () => {
    expect(() => openPodNetns(podWith([{ type: 'network', path: '/run/netns/gone' }]))).toThrow(/\/run\/netns\/gone/);
  });
});
