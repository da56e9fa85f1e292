import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { V1Pod, V1ResourceSlice } from '@kubernetes/client-node';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { chartDir } from '../../release/chart.ts';
import { valueArguments } from '../../release/helm.ts';
import { driverNamespace } from '../node/driver.ts';
import { holderObjects, type ReleaseSite } from './release.ts';

const wait = ['--wait', '--timeout', '2m'];
const settled = { timeout: 60_000, interval: 500 };

/** Guarantees of VFs, which the scheduler counts, on a node without the driver. */
export function describeBandwidth(get: () => ReleaseSite): void {
  describe('guaranteed bandwidth', () => {
    const kubectl = (...args: string[]) =>
      get()
        .node.kubectl('--namespace', driverNamespace, ...args)
        .trim();
    const names = ['first', 'second', 'third'];
    const phasesOf = (pods: string[]) =>
      pods.map((name) => (JSON.parse(kubectl('get', 'pod', name, '--output', 'json')) as V1Pod).status?.phase);

    beforeAll(() => {
      const { driver } = get();
      const bandwidth = { guaranteedMbps: 4000, portMbps: 10_000 };
      const values = { ...driver.values, inventoryPolicy: { pfs: [{ select: {}, bandwidth }] } };
      driver.helm(['install', 'netdra', chartDir, '--create-namespace', ...valueArguments(values), ...wait]);
    });
    afterAll(() => {
      for (const kind of ['pod', 'resourceclaim'])
        kubectl('delete', kind, ...names, '--ignore-not-found', '--timeout=60s');
      get().driver.helm(['uninstall', 'netdra', ...wait]);
    });

    it('is in the slices: of each VF, and of the port that they share', async () => {
      const { node } = get();
      const slices = () => node.list<V1ResourceSlice>('resourceslices').map(({ spec }) => spec);
      await expect.poll(() => slices().flatMap(({ devices = [] }) => devices), settled).toHaveLength(4);
      const guarantee = { bandwidth: { value: '4G' } };
      for (const { capacity, consumesCounters = [] } of slices().flatMap(({ devices = [] }) => devices)) {
        expect([capacity, consumesCounters[0]?.counters]).toEqual([guarantee, guarantee]);
      }
      const ports = slices().flatMap(({ sharedCounters = [] }) => sharedCounters);
      expect(ports.map(({ counters }) => counters)).toEqual([{ bandwidth: { value: '10G' } }]);
    });

    it('of a port goes to as many pods as it has bandwidth for, although there are VFs; the next one waits for one to end', async () => {
      const { node, driver } = get();
      const start = (name: string) => {
        const path = join(node.dir, `${name}.json`);
        writeFileSync(path, JSON.stringify(holderObjects(name, name, driver.target.consumerImage)));
        kubectl('apply', '--filename', path);
      };
      for (const name of names.slice(0, 2)) start(name);
      await expect.poll(() => phasesOf(names.slice(0, 2)), settled).toEqual(['Running', 'Running']);
      start('third');
      const reason = () =>
        kubectl('get', 'events', '--field-selector', 'involvedObject.name=third,reason=FailedScheduling');
      await expect.poll(reason, settled).toContain('cannot allocate all claims');
      expect(phasesOf(names)).toEqual(['Running', 'Running', 'Pending']);
      for (const kind of ['pod', 'resourceclaim']) kubectl('delete', kind, 'first', '--timeout=60s');
      await expect.poll(() => phasesOf(names.slice(1)), settled).toEqual(['Running', 'Running']);
    });
  });
}
