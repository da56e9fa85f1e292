import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { ClaimRecord, DeviceAttributes, DeviceMetadata } from '../../../../../src/framework/metadata/index.ts';
import { Bench } from '../bench.ts';
import { claim, driver, podUid } from '../samples.ts';

const device = { pool: 'node-1', name: 'dev-1' };
const record: ClaimRecord = { claim, podUid, requests: { vf: { name: 'vf', devices: [device] } } };
const networkData = { interfaceName: 'net1', ips: ['192.0.2.1/24'] };
const [a, b, c] = [{ string: 'a' }, { string: 'b' }, { string: 'c' }];

function deviceWith(attributes: DeviceAttributes, more: Partial<DeviceMetadata> = {}): DeviceMetadata {
  return { driver, ...device, attributes, ...more };
}

describe('a repeated prepare', () => {
  let bench: Bench;
  beforeEach(() => {
    bench = new Bench();
  });
  afterEach(() => bench[Symbol.dispose]());

  // Each step is done by a driver that was started anew.
  const prepare = (...devices: DeviceMetadata[]) =>
    bench.start().prepare(record, new Map(devices.length === 0 ? [] : [['vf', devices]]));
  const update = (attributes: DeviceAttributes) => bench.start().update(claim, 'vf', [deviceWith(attributes)]);
  const content = () => bench.start().read(claim, 'vf');
  const attributesOf = () => content()?.devices[0]?.attributes;

  it('removes metadata that only the earlier prepare returned, in the files of all layouts', async () => {
    await prepare(deviceWith({ a, b }, { networkData }));
    await prepare(deviceWith({ b }));
    expect(content()).toMatchObject({ generation: 2, devices: [{ attributes: { b } }] });
    expect(content()?.devices[0]).not.toHaveProperty('networkData');
    const paths = [...bench.mounts(claim.uid).values()].map((path) => path.slice(bench.path.length));
    expect(paths).toHaveLength(4);
    for (const path of paths) expect(bench.read(path), path).not.toMatch(/"a"|net1/);
    await prepare(deviceWith({ b }));
    expect(content()).toMatchObject({ generation: 2 });
  });

  it('keeps metadata from an update, even if an earlier prepare returned the same metadata', async () => {
    await prepare(deviceWith({ a, b }));
    expect(await update({ a, b })).toEqual({ generation: 1, isWritten: false });
    await prepare(deviceWith({ c }));
    expect(attributesOf()).toEqual({ a, b, c });
    await prepare(deviceWith({}));
    expect(attributesOf()).toEqual({ a, b });
    await update({ a });
    expect(attributesOf()).toEqual({ a });
  });

  it('shows the value of the update again once prepare no longer overrides it', async () => {
    await prepare(deviceWith({ a }));
    await update({ a: b });
    await prepare(deviceWith({ a: c }));
    expect(attributesOf()).toEqual({ a: c });
    await prepare(deviceWith({}));
    expect(attributesOf()).toEqual({ a: b });
  });

  it('keeps all content if prepare defers the metadata', async () => {
    await prepare(deviceWith({ a }));
    await prepare();
    expect(attributesOf()).toEqual({ a });
    await prepare(deviceWith({ b }));
    expect(attributesOf()).toEqual({ b });
  });
});
