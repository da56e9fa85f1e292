import { expect, it } from 'vitest';
import { allocated, fromClass } from './driver-bench.ts';
import { bench, refusal, useDriverBench } from './driver-hooks.ts';

useDriverBench();

const resource = 'intel.com/sriov';
const trusted = () => allocated('c', ['dev-2'], { config: [fromClass({ vf: { trust: true } })] });
const calls = () => bench.control.calls.filter((call) => call.includes('0000:00:00.2'));
const problem = expect.stringMatching(/^claim default\/c: dev-2 cannot be prepared: .*: intel\.com\/sriov$/);

it('a device that a device plugin has allocated is denied to new claims, but not to prepared claims', async () => {
  const claim = trusted();
  const kept = allocated('kept', ['dev-1']);
  await bench.prepare(kept);
  bench.givenOut = new Map([
    ['0000:00:00.1', resource],
    ['0000:00:00.2', resource],
  ]);
  expect(await bench.prepare(kept)).toMatchObject({ devices: [] });
  expect(await bench.prepare(claim)).toMatchObject(refusal('device-given-out', problem));
  expect(calls()).toEqual([]);
  bench.givenOut.delete('0000:00:00.2');
  expect(await bench.prepare(claim)).toMatchObject({ devices: [] });
});

it('a device that a device plugin allocates after a failed prepare is not configured by the next prepare', async () => {
  const claim = trusted();
  bench.control.failures.set('apply', new Error('busy'));
  expect(await bench.prepare(claim)).toMatchObject({ error: expect.anything() });
  expect(bench.store.claims()).toMatchObject([{ state: 'preparing' }]);
  bench.control.failures.clear();
  const before = calls();
  bench.givenOut = new Map([['0000:00:00.2', resource]]);
  expect(await bench.prepare(claim)).toMatchObject(refusal('device-given-out', problem));
  expect(calls()).toEqual(before);
  bench.givenOut.clear();
  expect(await bench.prepare(claim)).toMatchObject({ devices: [] });
});

it('a device that a program has open is denied to a claim until the program ends', async () => {
  bench.open.add('0000:00:00.2');
  const open = expect.stringMatching(/^claim default\/c: dev-2 cannot be prepared: a program has it open through vfio/);
  expect(await bench.prepare(trusted())).toMatchObject(refusal('device-given-out', open));
  expect([calls(), bench.store.claims()]).toEqual([[], []]);
  bench.open.clear();
  expect(await bench.prepare(trusted())).toMatchObject({ devices: [] });
});

it('a device that the pod of another claim has open is denied, and the error names that claim', async () => {
  await bench.prepare(allocated('first', ['dev-2']));
  bench.open.add('0000:00:00.2');
  const inUse = expect.stringContaining('it is prepared for claim default/first');
  expect(await bench.prepare(trusted())).toMatchObject({ error: { code: 'device-in-use', message: inUse } });
});

it('an unreadable device plugin checkpoint fails a new claim, but not a claim whose prepare has begun', async () => {
  const claim = trusted();
  bench.control.failures.set('apply', new Error('busy'));
  await bench.prepare(claim);
  bench.control.failures.clear();
  bench.givenOut = undefined;
  expect(await bench.prepare(claim)).toMatchObject({ devices: [] });
  const { error } = (await bench.prepare(allocated('new', ['dev-3']))) ?? {};
  expect(error).toMatchObject({
    code: 'device-given-out',
    retriable: true,
    hint: expect.stringContaining('netdra doctor'),
  });
});
