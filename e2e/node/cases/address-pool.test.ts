import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { NetworkAddressLease } from '../../../src/driver/addresses/objects.ts';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { Bench } from '../bench.ts';
import { addVfPod, expectClean } from '../vf-pod.ts';

/** For conditions: on a busy machine seconds become minutes. */
const patient = { timeout: 120_000, interval: 200 };

describe('a pod with an address of a pool', { timeout: 300_000 }, () => {
  let bench: Bench;

  beforeAll(async () => {
    bench = await Bench.start({
      version: '2.1',
      logger: new RecordingLogger(),
      settings: { reconcileIntervalMs: 500 },
    });
    await bench.startDriver();
  });
  afterAll(async () => await bench?.[Symbol.asyncDispose]());

  it('gets its lease back after someone has deleted it', async () => {
    const pool = {
      kind: 'NetworkAddressPool',
      metadata: { name: 'lan' },
      spec: { ranges: [{ network: '192.0.2.0/24' }] },
    };
    bench.api.create(pool);
    const fields = { addresses: undefined, addressPool: { name: 'lan', key: 'db' } };
    const pod = await addVfPod(bench, 'kept', 0, fields);
    await bench.startPod(pod);
    const leases = () => bench.api.objects<NetworkAddressLease>('NetworkAddressLease');
    const [lease] = leases();
    expect(lease?.spec.pod.uid).toBe(pod.metadata.uid);
    bench.api.delete('NetworkAddressLease', lease?.metadata.name ?? '');
    await expect.poll(() => leases().map(({ spec }) => spec), patient).toEqual([lease?.spec]);
    await bench.endPod(pod);
    await expectClean(bench);
  });
});
