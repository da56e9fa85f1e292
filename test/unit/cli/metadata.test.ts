import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  findClaim,
  formatClaimFiles,
  formatFile,
  isGood,
  viewClaimFiles,
  viewFile,
} from '../../../src/cli/metadata.ts';
import type { ClaimMetadata } from '../../../src/framework/metadata/index.ts';
import { Bench } from '../framework/metadata/bench.ts';
import { driver } from '../framework/metadata/samples.ts';
import { plainTerminal } from './plain-terminal.ts';

const claim = { namespace: 'apps', name: 'fast-net', uid: 'c-1' };
const device = { driver, pool: 'node-1', name: '0000-3b-02-0' };
const networkData = { interfaceName: 'net1', hardwareAddress: '02:00:00:00:00:01', ips: ['192.0.2.7/24'] };

const { pool, name } = device;
const record = { claim, podUid: 'p-1', requests: { vf: { name: 'vf', devices: [{ pool, name }] } } };

let bench: Bench;
let metadata: ClaimMetadata;
beforeEach(async () => {
  bench = new Bench();
  metadata = bench.start();
  await metadata.prepare(record, new Map([['vf', 'deferred' as const]]));
});
afterEach(() => bench[Symbol.dispose]());

const update = () =>
  metadata.update(claim, 'vf', [
    { ...device, networkData, attributes: { vfIndex: { int: 0 }, driver: { string: 'iavf' } } },
  ]);
const view = () => viewClaimFiles(driver, bench, 'apps/fast-net');
const states = async () => Object.fromEntries((await view()).files.map(({ layout, state }) => [layout, state]));

it('findClaim finds a claim by its name alone unless several namespaces have a claim of that name', () => {
  const claims = ['apps', 'lab'].map((namespace) => ({ identity: { ...claim, namespace } }));
  expect(findClaim(claims.slice(1), 'fast-net')).toBe('lab/fast-net');
  expect(() => findClaim(claims, 'fast-net')).toThrow(
    'several claims are called fast-net: apps/fast-net, lab/fast-net',
  );
  expect(() => findClaim(claims, 'slow-net')).toThrow(
    'there is no file slow-net, and no claim of that name is prepared',
  );
});

describe('viewClaimFiles', () => {
  it('reports that files are written only once the pod has a sandbox', async () => {
    const found = await view();
    expect(await states()).toEqual({
      v1: 'pending',
      kep: 'pending',
      'attributes-json': 'current',
      'downward-api': 'pending',
    });
    expect(isGood(found)).toBe(true);
    expect(formatClaimFiles(plainTerminal, found)).toContain(
      'claim apps/fast-net (c-1)\nrequest vf: not written yet\n  v1: not written yet, since the pod has no sandbox with the device',
    );
  });

  it("prints the state of a claim's start gate", async () => {
    const gate = { program: '/bin/netdra-gate', timeoutSeconds: 100 };
    metadata = bench.start({ layouts: ['v1'], gate });
    expect((await view()).gate).toBeUndefined();
    await metadata.prepare(record, new Map());
    const shown = async () => /^start gate: .*$/m.exec(formatClaimFiles(plainTerminal, await view()))?.[0];
    expect(await shown()).toBe('start gate: closed: containers wait');
    await metadata.holdGate(claim, 's-1', 'the VF is in another pod');
    expect(await shown()).toBe('start gate: waiting in sandbox s-1: the VF is in another pod');
    await update();
    await metadata.openGate(claim, 's-1');
    expect(await shown()).toBe('start gate: open for sandbox s-1');
    await metadata.endGate(claim, 's-1');
    expect(await shown()).toBe('start gate: ended in sandbox s-1');
  });

  it('prints metadata as containers see it', async () => {
    await update();
    const found = await view();
    expect(found.requests).toMatchObject([{ name: 'vf', generation: 1 }]);
    expect(isGood(found)).toBe(true);
    const text = formatClaimFiles(plainTerminal, found);
    expect(text).toMatch(
      /metadata\.json: valid\n {2}claim {7}apps\/fast-net \(c-1\)\n {2}generation {2}1\n {2}request {5}vf\n/,
    );
    expect(text).toContain(
      '      interface  net1\n      MAC        02:00:00:00:00:01\n      addresses  192.0.2.7/24\n',
    );
    expect(text).toContain('      vfIndex = 0\n');
  });

  it('reports missing files, and files that another process changed', async () => {
    await update();
    const [v1, kep] = (await view()).files;
    rmSync(kep?.path ?? '');
    writeFileSync(v1?.path ?? '', readFileSync(v1?.path ?? '', 'utf8').replaceAll('192.0.2.7/24', '192.0.2.07/24'));
    expect(await states()).toMatchObject({ v1: 'different', kep: 'missing', 'downward-api': 'current' });
    const found = await view();
    expect(isGood(found)).toBe(false);
    expect(formatClaimFiles(plainTerminal, found)).toMatch(
      /not valid: .*"192\.0\.2\.07\/24" is not a canonical address/,
    );
  });

  it('reports that a claim is not prepared', async () => {
    await expect(viewClaimFiles(driver, bench, 'apps/other')).rejects.toThrow(
      'claim apps/other is not prepared on this node',
    );
  });
});

it('viewFile names the fault of an invalid file', async () => {
  const path = join(bench.path, 'x.json');
  writeFileSync(path, '{"apiVersion":"v1","kind":"Pod"}');
  const found = await viewFile(path);
  expect(isGood(found)).toBe(false);
  expect(formatFile(plainTerminal, found)).toMatch(
    /x\.json: not valid: metadata file .* cannot be decoded: no compatible/,
  );
  expect((await viewFile(join(bench.path, 'none'))).problem).toMatch(/^cannot read metadata file .*ENOENT/);
});
