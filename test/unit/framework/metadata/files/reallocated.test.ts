import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { ClaimMetadata, ClaimRecord, DeviceMetadata } from '../../../../../src/framework/metadata/index.ts';
import { Bench } from '../bench.ts';
import { claim, driver } from '../samples.ts';

const pool = 'node-1';
const deviceOf = (name: string, interfaceName = 'net1'): DeviceMetadata => {
  return { driver, pool, name, networkData: { interfaceName } };
};
const request = (name: string, device: string) => ({ name, devices: [{ pool, name: device }] });

const gates = [
  ['file', undefined],
  ['hook', { program: '/x/netdra-gate', timeoutSeconds: 100 }],
] as const;

describe.each(gates)('a claim that is reallocated while prepared, with the start gate %s', (_mode, gate) => {
  let bench: Bench;
  let metadata: ClaimMetadata;
  beforeEach(() => {
    bench = new Bench();
    metadata = bench.start({
      layouts: ['v1', 'kep', 'attributes-json'],
      attributesOf: ({ name }) => ({ 'example.com/serial': { string: `serial-of-${name}` } }),
      ...(gate && { gate }),
    });
  });
  afterEach(() => bench[Symbol.dispose]());

  const read = (path: string) => (bench.files().includes(path) ? bench.read(path) : undefined);
  const gateFile = 'data/dra-device-metadata/default_fast-net/gate';
  const fileOf = (base: string) => read(`data/dra-device-metadata/default_fast-net/${base}/metadata.json`);
  const blank = gate && '';
  const prepare = (requests: ClaimRecord['requests'], contents = new Map<string, DeviceMetadata[]>()) =>
    metadata.prepare({ claim, requests }, contents);

  it('blanks the file of its old device, makes containers wait, and continues the generations', async () => {
    await prepare({ vf: request('vf', 'dev-1') });
    await metadata.update(claim, 'vf', [deviceOf('dev-1')], 's1');
    expect(fileOf('vf')).toContain('dev-1');
    await prepare({ vf: request('vf', 'dev-2') });
    expect([fileOf('vf')?.trim(), read(gateFile)]).toEqual([blank, undefined]);
    expect(metadata.read(claim, 'vf')).toBeUndefined();
    expect(read(`attributes/${driver}-${claim.uid}-vf.json`)).toMatch(/^(?=.*serial-of-dev-2)(?!.*dev-1)/s);
    await metadata.update(claim, 'vf', [deviceOf('dev-2')], 's2');
    expect(metadata.read(claim, 'vf')).toMatchObject({ generation: 2, devices: [{ name: 'dev-2' }] });
  });

  it('shows only content of the new devices, and blanks a request that the new allocation lacks', async () => {
    await prepare({ vf: request('vf', 'dev-1'), other: request('other', 'dev-3') });
    await metadata.update(claim, 'vf', [deviceOf('dev-1', 'net7')], 's1');
    await metadata.update(claim, 'other', [deviceOf('dev-3', 'net7')], 's1');
    await prepare({ vf: request('vf', 'dev-2') }, new Map([['vf', [{ driver, pool, name: 'dev-2' }]]]));
    expect(fileOf('vf')).toContain('dev-2');
    expect(fileOf('vf')).not.toMatch(/dev-1|net7/);
    expect(fileOf('other')).toBeUndefined();
    expect(metadata.read(claim, 'other')).toBeUndefined();
  });

  it('keeps its content when prepared again with the same devices or with additional requests', async () => {
    await prepare({ vf: request('vf', 'dev-1') });
    await metadata.update(claim, 'vf', [deviceOf('dev-1')], 's1');
    const before = fileOf('vf');
    await prepare({ vf: request('vf', 'dev-1') });
    await prepare({ vf: request('vf', 'dev-1'), other: request('other', 'dev-3') });
    expect(fileOf('vf')).toBe(before);
    expect(before).toContain('net1');
  });

  it('keeps gate and content when prepared again unchanged after it lost a request', async () => {
    const devices = [deviceOf('dev-1')];
    await prepare({ vf: request('vf', 'dev-1'), other: request('other', 'dev-3') });
    await prepare({ vf: request('vf', 'dev-1') });
    await metadata.update(claim, 'vf', devices, 's1');
    const before = fileOf('vf');
    await prepare({ vf: request('vf', 'dev-1') });
    expect([fileOf('vf'), metadata.read(claim, 'vf')?.devices]).toEqual([before, devices]);
    expect(read(gateFile)).toEqual(gate && expect.stringContaining('s1'));
    expect(metadata.isGated(claim)).toBe(gate !== undefined);
  });
});
