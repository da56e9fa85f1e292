import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, vi } from 'vitest';
import { afterOthers, OtherDrivers } from '../../../../src/driver/devices/other-drivers.ts';
import { ResourceApi } from '../../../../src/framework/kube/index.ts';
import { createSliceApi } from '../../../../src/framework/resourceslice/index.ts';
import { textFiles } from '../../../../src/lib/text-files.ts';
import { itWith } from '../../../doubles/it-with.ts';
import { startKubeBench } from '../../../doubles/kube-bench.ts';
import { testDriver, testNode } from '../../../doubles/objects.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';

const other = 'dra.example';

function sliceOf(driver: string, attributes: object[], nodeName = testNode) {
  const name = `${driver}-${nodeName}`;
  const devices = attributes.map((each, index) => ({ name: `d-${index}`, attributes: each }));
  const pool = { name: nodeName, generation: 1, resourceSliceCount: 1 };
  const metadata = { name };
  const spec = { driver, nodeName, pool, devices };
  return { apiVersion: 'resource.k8s.io/v1', kind: 'ResourceSlice', metadata, spec };
}

async function startBench() {
  const bench = await startKubeBench();
  const { client, clock, logger, stack } = bench;
  const resources = new ResourceApi(client);
  const files = { ...textFiles };
  const statePath = join(stack.use(tempDir()).path, 'other-drivers.json');
  const options = { resources, driver: testDriver, node: testNode, clock, logger, files, statePath };
  const open = () => stack.use(new OtherDrivers({ ...options, random: () => 0 }));
  const others = open();
  const functions = (of: OtherDrivers) => {
    const offered = of.offered();
    return offered && Object.fromEntries(offered);
  };
  return { ...bench, others, offered: () => functions(others), open, functions, files, statePath };
}

describe('OtherDrivers', () => {
  const it = itWith(startBench);

  it('knows which PCI functions other drivers offer on the node, from their ResourceSlices', async ({
    own: { api, others, offered },
  }) => {
    const address = (value: string) => ({ string: value });
    api.create(
      sliceOf(other, [
        { 'resource.kubernetes.io/pciBusID': address('0000:3B:02.1') },
        { pciAddress: address('0000:3b:02.2') },
        { 'vendor.example/pciAddress': address('0000:3b:02.3') },
        { pciAddress: { int: 3 }, model: address('0000:3b:02.4') },
        { pciAddress: address('3b:02.5') },
      ]) as never,
    );
    api.create(sliceOf(testDriver, [{ pciAddress: address('0000:3b:02.6') }]) as never);
    api.create(sliceOf(other, [{ pciAddress: address('0000:3b:02.7') }], 'elsewhere') as never);
    expect(offered()).toBeUndefined();
    await others.start();
    const known = { '0000:3b:02.1': other, '0000:3b:02.2': other, '0000:3b:02.3': other };
    expect(offered()).toEqual(known);
  });

  it('remembers a PCI function for five minutes after its ResourceSlice is deleted, even across a restart', async ({
    own,
  }) => {
    const { api, clock, others, offered, open, functions, statePath } = own;
    const pciAddress = '0000:3b:02.1';
    api.create(sliceOf(other, [{ pciAddress: { string: pciAddress } }]) as never);
    await others.start();
    expect(offered()).toEqual({ [pciAddress]: other });
    await api.until(() => api.watchCount === 1);
    api.delete('ResourceSlice', `${other}-${testNode}`);
    const next = open();
    await next.start();
    clock.advance(299_000);
    expect(functions(next)).toEqual({ [pciAddress]: other });
    clock.advance(2_000);
    expect(functions(next)).toEqual({});
    expect(readFileSync(statePath, 'utf8')).toBe('{}');
    // The first one learns of the deletion by its watch.
    await vi.waitFor(() => {
      clock.advance(301_000);
      expect(offered()).toEqual({});
    });
  });

  it('remembers PCI functions while the API server is unreachable, and retries if writing its file fails', async ({
    own,
  }) => {
    const { client, clock, files, logger, open, functions, statePath } = own;
    const known = { '0000:3b:02.1': other };
    writeFileSync(statePath, JSON.stringify(known));
    const request = vi.spyOn(client, 'request').mockRejectedValue(new Error('away'));
    const next = open();
    await next.start();
    for (let minute = 0; minute < 8; minute++) {
      clock.advance(60_000);
      expect(functions(next)).toBeUndefined();
    }
    request.mockRestore();
    await vi.waitFor(() => {
      clock.advance(1_000);
      expect(functions(next)).toEqual(known);
    });
    const replace = vi.spyOn(files, 'replace').mockImplementation(() => {
      throw new Error('the disk is full');
    });
    clock.advance(301_000);
    for (let look = 0; look < 3; look++) expect(functions(next)).toEqual({});
    expect(replace).toHaveBeenCalledTimes(3);
    expect(logger.messages('warn').filter((message) => message.startsWith('cannot store'))).toHaveLength(1);
    replace.mockRestore();
    expect(functions(next)).toEqual({});
    expect(readFileSync(statePath, 'utf8')).toBe('{}');
  });

  it('lets the publisher wait until the devices of other drivers are known', async ({ own: { client, resources } }) => {
    let knows = false;
    const api = afterOthers(createSliceApi(client, resources, { driver: testDriver, nodeName: testNode }), () => knows);
    const { signal } = new AbortController();
    const refused = { code: 'slice-others-unknown', retriable: true };
    await expect(api.list(signal)).rejects.toMatchObject(refused);
    knows = true;
    expect(await api.list(signal)).toMatchObject({ slices: [] });
  });

  it('waits at most two seconds for the API server to answer', async ({ own: { client, clock, others, offered } }) => {
    const unanswered = ({ signal }: { signal?: AbortSignal }) =>
      new Promise<never>((_, reject) => signal?.addEventListener('abort', () => reject(signal.reason)));
    vi.spyOn(client, 'request').mockImplementation(unanswered);
    let isStarted = false;
    void others.start().then(() => {
      isStarted = true;
    });
    await new Promise((resolve) => setImmediate(resolve));
    expect(isStarted).toBe(false);
    await vi.waitFor(() => {
      clock.advance(2_000);
      expect(isStarted).toBe(true);
    });
    expect(offered()).toBeUndefined();
  });
});
