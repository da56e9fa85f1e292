import { describe, expect, vi } from 'vitest';
import { OtherDrivers } from '../../../../src/driver/devices/other-drivers.ts';
import { ResourceApi } from '../../../../src/framework/kube/index.ts';
import { itWith } from '../../../doubles/it-with.ts';
import { startKubeBench } from '../../../doubles/kube-bench.ts';
import { testDriver, testNode } from '../../../doubles/objects.ts';

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
  const others = stack.use(
    new OtherDrivers({ resources, driver: testDriver, node: testNode, clock, logger, random: () => 0 }),
  );
  const offered = () => others.offered && Object.fromEntries(others.offered);
  return { ...bench, others, offered };
}

describe('OtherDrivers', () => {
  const it = itWith(startBench);

  it('knows the PCI functions in slices of other drivers on its node, and follows them', async ({
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
    await api.until(() => api.watchCount === 1);
    api.delete('ResourceSlice', `${other}-${testNode}`);
    await vi.waitFor(() => expect(offered()).toEqual({}));
  });

  it('waits two seconds for an API server that does not answer', async ({
    own: { client, clock, others, offered },
  }) => {
    const unanswered = ({ signal }: { signal?: AbortSignal }) =>
      new Promise<never>((_, reject) => signal?.addEventListener('abort', () => reject(signal.reason)));
    vi.spyOn(client, 'request').mockImplementation(unanswered);
    const started = others.start();
    clock.advance(2_000);
    await started;
    expect(offered()).toBeUndefined();
  });
});
