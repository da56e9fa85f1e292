import { readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  type ClaimMetadata,
  layouts,
  type WatchOptions,
  watchRequestMetadata,
} from '../../../../../src/framework/metadata/index.ts';
import { Bench } from '../bench.ts';
import { claim, documentOf, kernel, recordOf } from '../samples.ts';

const [device] = documentOf(kernel).devices as [ReturnType<typeof documentOf>['devices'][number]];
const withIp = (n: number) => ({ ...device, networkData: { ips: [`192.0.2.${n}/24`] } });
const hour = 3_600_000;

let bench: Bench;
let metadata: ClaimMetadata;
let root: string;
beforeEach(async () => {
  bench = new Bench();
  metadata = bench.start({ layouts: ['v1'] });
  await metadata.prepare(recordOf(kernel), new Map());
  await metadata.update(claim, 'vf', [withIp(1)]);
  root = bench.enter(claim.uid);
});
afterEach(() => bench[Symbol.dispose]());

const watch = (options: WatchOptions) =>
  watchRequestMetadata({ claim: 'fast-net', request: 'vf' }, { root, ...options });

/** What the next state is, in short. */
async function next(states: ReturnType<typeof watch>) {
  const { value } = await states.next();
  return [value.files[0]?.generation, value.devices[0]?.networkData?.ips];
}

const modes = [
  ['the kernel reports changes', { pollMs: hour }],
  ['the kernel reports nothing', { notify: false, pollMs: 5 }],
] as const;

describe.each(modes)('watchRequestMetadata, while %s', (_what, options) => {
  it('yields the current content, and then every change', async () => {
    const states = watch(options);
    expect(await next(states)).toEqual([1, ['192.0.2.1/24']]);
    for (let generation = 2; generation < 6; generation++) {
      const pending = next(states);
      await metadata.update(claim, 'vf', [withIp(generation)]);
      expect(await pending).toEqual([generation, [`192.0.2.${generation}/24`]]);
    }
    await states.return(undefined as never);
  });

  it('yields other content of the same generation, which the Go helper writes at a repeated prepare', async () => {
    const states = watch(options);
    expect(await next(states)).toEqual([1, ['192.0.2.1/24']]);
    const pending = next(states);
    const path = join(root, `${layouts.v1.containerPaths({ claim, request: 'vf', driver: device.driver })[0]}`);
    // As long as before, so that one write changes it.
    writeFileSync(path, readFileSync(path, 'utf8').replaceAll('192.0.2.1/24', '192.0.2.9/24'), { flag: 'r+' });
    expect(await pending).toEqual([1, ['192.0.2.9/24']]);
    await states.return(undefined as never);
  });

  it('misses no change that arrives while the caller handles the previous change', async () => {
    const states = watch(options);
    await next(states);
    await metadata.update(claim, 'vf', [withIp(2)]);
    await metadata.update(claim, 'vf', [withIp(3)]);
    expect(await next(states)).toEqual([3, ['192.0.2.3/24']]);
  });

  it('yields nothing while the file is withdrawn, and continues when it is written again', async () => {
    const gated = bench.start({ layouts: ['v1'], gate: { program: '/bin/true', timeoutSeconds: 1 } });
    await gated.prepare(recordOf(kernel), new Map());
    const states = watch(options);
    await next(states);
    const pending = next(states);
    await gated.withdraw(claim);
    await setTimeout(20);
    await gated.update(claim, 'vf', [withIp(7)]);
    expect(await pending).toEqual([2, ['192.0.2.7/24']]);
    // From the start there is nothing to give.
    await gated.withdraw(claim);
    await expect(watch(options).next()).rejects.toMatchObject({ code: 'metadata-not-found', retriable: true });
  });

  it('yields nothing if the same content is written again', async () => {
    const states = watch(options);
    await next(states);
    const pending = next(states);
    const path = join(root, `${layouts.v1.containerPaths({ claim, request: 'vf', driver: device.driver })[0]}`);
    const text = bench.read('data/dra-device-metadata/default_fast-net/vf/metadata.json');
    for (let n = 0; n < 5; n++) writeFileSync(path, text, { flag: 'r+' });
    await metadata.update(claim, 'vf', [withIp(2)]);
    expect(await pending).toEqual([2, ['192.0.2.2/24']]);
  });

  it('follows a file that is replaced by rename, as the Go helper of 1.37 does', async () => {
    const states = watch(options);
    await next(states);
    const [containerPath = ''] = layouts.v1.containerPaths({ claim, request: 'vf', driver: device.driver });
    const path = join(root, containerPath);
    const textOf = (generation: number) =>
      layouts.v1.encode({ ...kernel.content, document: { ...documentOf(kernel), generation } }) ?? '';
    for (const generation of [2, 4]) {
      const replaced = next(states);
      writeFileSync(`${path}.tmp`, textOf(generation));
      renameSync(`${path}.tmp`, path);
      expect(await replaced).toEqual([generation, device.networkData?.ips]);
      // What the kernel had to say of the file before is through; now it is the new file that changes.
      const changed = next(states);
      await setTimeout(50);
      writeFileSync(path, textOf(generation + 1), { flag: 'r+' });
      expect(await changed).toEqual([generation + 1, device.networkData?.ips]);
    }
  });

  it('ends with the error when the file is removed', async () => {
    const states = watch(options);
    await next(states);
    const pending = next(states);
    rmSync(join(root, 'var'), { recursive: true });
    await expect(pending).rejects.toMatchObject({ code: 'metadata-not-found' });
    expect(await states.next()).toEqual({ done: true, value: undefined });
  });

  it('ends with the reason of its abort signal', async () => {
    const stop = new AbortController();
    const states = watch({ ...options, signal: stop.signal });
    await next(states);
    const pending = next(states);
    stop.abort(new Error('enough'));
    await expect(pending).rejects.toThrow('enough');
  });
});

it('watchRequestMetadata rejects if the file is missing or the signal is aborted', async () => {
  await expect(watchRequestMetadata({ claim: 'none', request: 'vf' }, { root }).next()).rejects.toMatchObject({
    code: 'metadata-not-found',
  });
  await expect(watch({ signal: AbortSignal.abort(new Error('too late')) }).next()).rejects.toThrow('too late');
});
