import { expect, it } from 'vitest';
import { allocated } from './driver-bench.ts';
import { bench, refusal, useDriverBench } from './driver-hooks.ts';

useDriverBench();

it('a device that a device plugin gives out is refused, unless its claim is prepared already', async () => {
  const kept = allocated('kept', ['dev-1']);
  await bench.prepare(kept);
  bench.givenOut.set('0000:00:00.1', 'intel.com/sriov').set('0000:00:00.2', 'intel.com/sriov');
  expect(await bench.prepare(kept)).toMatchObject({ devices: [] });
  const problem = expect.stringMatching(/^claim default\/c: dev-2 cannot be prepared: .*: intel\.com\/sriov$/);
  expect(await bench.prepare(allocated('c', ['dev-2']))).toMatchObject(refusal('device-given-out', problem));
  expect(bench.control.calls.filter((call) => call.includes('0000:00:00.2'))).toEqual([]);
  bench.givenOut.delete('0000:00:00.2');
  expect(await bench.prepare(allocated('c', ['dev-2']))).toMatchObject({ devices: [] });
});
