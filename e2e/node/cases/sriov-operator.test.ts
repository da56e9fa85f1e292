import { expect, it, vi } from 'vitest';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { testDriver, testNode } from '../../../test/doubles/objects.ts';
import { Bench } from '../bench.ts';
import { containerdSeries } from '../tools.ts';

interface PublishedSlice {
  spec: { devices?: { attributes: Record<string, { string?: string }>; taints?: { key: string }[] }[] };
}

function stateOf(pciAddress: string, current: string) {
  const annotations = {
    'sriovnetwork.openshift.io/desired-state': 'Idle',
    'sriovnetwork.openshift.io/current-state': current,
  };
  return {
    apiVersion: 'sriovnetwork.openshift.io/v1',
    kind: 'SriovNetworkNodeState',
    metadata: { name: testNode, namespace: 'sriov', annotations },
    spec: { interfaces: [{ pciAddress, externallyManaged: true }] },
    status: { syncStatus: 'Succeeded', interfaces: [] },
  };
}

it('VFs of PFs that the SR-IOV operator manages have a taint while the operator drains the node', async () => {
  const settings = { simulate: { pfs: 2, vfsPerPf: 2 }, sriovOperator: 'sriov' };
  await using bench = await Bench.start({ version: containerdSeries[0], logger: new RecordingLogger(), settings });
  await bench.startDriver();
  const devices = () => bench.api.objects<PublishedSlice>('ResourceSlice').flatMap(({ spec }) => spec.devices ?? []);
  const tainted = () =>
    devices().filter(({ taints = [] }) => taints.some(({ key }) => key === `${testDriver}/operator-at-work`));
  const pfOf = ({ attributes }: ReturnType<typeof devices>[number]) => attributes.pfPciAddress?.string;
  await vi.waitUntil(() => devices().length === 4, { timeout: 60_000 });
  const [pf = ''] = devices().map(pfOf);
  bench.api.create(stateOf(pf, 'Draining'));
  await vi.waitUntil(() => tainted().length > 0, { timeout: 60_000 });
  expect(tainted().map(pfOf)).toEqual([pf, pf]);
  bench.api.update(stateOf(pf, 'Idle'));
  await vi.waitUntil(() => tainted().length === 0, { timeout: 60_000 });
  expect(devices()).toHaveLength(4);
});
