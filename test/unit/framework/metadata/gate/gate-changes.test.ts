import { existsSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { ClaimSpecs } from '../../../../../src/framework/metadata/files/cdi.ts';
import { ClaimFiles } from '../../../../../src/framework/metadata/files/claim-files.ts';
import { formatGate, parseGate } from '../../../../../src/framework/metadata/gate/gate.ts';
import { codePoint } from '../../../../doubles/code-point.ts';
import { claim, driver } from '../samples.ts';
import {
  a,
  b,
  bench,
  devices,
  gate,
  gateOf,
  gateText,
  hidden,
  isBlank,
  metadata,
  prepareAndServe,
  record,
  restart,
  serve,
  useGate,
} from './gate-bench.ts';

useGate();

describe('a driver that may be killed at any time', () => {
  /** The first call of a kind that fails, and with it the process. */
  function killedAt<T>(part: { prototype: T }, method: keyof T & string) {
    const spy = vi.spyOn(part.prototype as Record<string, () => never>, method);
    spy.mockImplementationOnce(() => {
      throw new Error('killed');
    });
    return spy;
  }

  it('closes the gate before it creates files of an added layout', async () => {
    restart({ gate, enabled: false });
    await metadata.prepare(record, new Map());
    await metadata.openGate(claim, a);
    restart({ gate });
    {
      using _spy = killedAt(ClaimSpecs, 'write');
      await expect(metadata.prepare(record, new Map())).rejects.toThrow('killed');
    }
    expect([gateText(), hidden().some((path) => existsSync(path))]).toEqual([undefined, false]);
    // Another instance, which has metadata off, opens it for the content that it knows: none is mounted yet.
    await bench.start({ gate, enabled: false }).openGate(claim, a);
    {
      using _spy = killedAt(ClaimFiles, 'writeRequest');
      await expect(metadata.prepare(record, new Map())).rejects.toThrow('killed');
    }
    expect([gateText(), hidden().some((path) => existsSync(path))]).toEqual([undefined, false]);
    await expect(bench.start({ gate, enabled: false }).openGate(claim, a)).rejects.toThrow('has no metadata yet');
  });

  it('opens the gate after the files have their content', async () => {
    await metadata.prepare(record, new Map());
    using _spy = killedAt(ClaimFiles, 'writeRequest');
    await expect(metadata.update(claim, 'vf', devices, a)).rejects.toThrow('killed');
    expect([gateText(), hidden().every(isBlank)]).toEqual([undefined, true]);
  });

  it('stores a withdrawal before it empties the file', async () => {
    await prepareAndServe(a);
    {
      using _spy = killedAt(ClaimFiles, 'writeRequest');
      await expect(metadata.withdraw(claim)).rejects.toThrow('killed');
    }
    restart({ gate });
    expect([metadata.read(claim, 'vf'), gateText()]).toEqual([undefined, undefined]);
    await metadata.restore();
    expect(hidden().every(isBlank)).toBe(true);
    await expect(metadata.openGate(claim, b)).rejects.toThrow('has no metadata yet');
  });

  it('adds the hook to the spec before it creates the empty file to mount', async () => {
    // As a driver without the gate has laid it down.
    await bench.start().prepare(record, new Map());
    {
      using _spy = killedAt(ClaimSpecs, 'write');
      await expect(metadata.prepare(record, new Map())).rejects.toThrow('killed');
    }
    expect(hidden().some((path) => existsSync(path))).toBe(false);
    // Also not by what is called for the claim before it is prepared again.
    await metadata.update(claim, 'vf', devices);
    await metadata.withdraw(claim);
    expect(hidden().some((path) => existsSync(path))).toBe(false);
  });

  it('removes the empty files before it removes the hook from the spec', async () => {
    await metadata.prepare(record, new Map());
    using _spy = killedAt(ClaimSpecs, 'write');
    await expect(bench.start().prepare(record, new Map())).rejects.toThrow('killed');
    expect(hidden().some((path) => existsSync(path))).toBe(false);
    expect(bench.edits(claim.uid)[0]?.hooks).toHaveLength(1);
  });
});

describe('a driver started with or without a gate', () => {
  it('does not change claims until they are prepared again', async () => {
    restart();
    await metadata.prepare(record, new Map());
    const updated = bench.start({ gate });
    await updated.update(claim, 'vf', devices);
    await updated.openGate(claim, a);
    await updated.holdGate(claim, a, 'no');
    expect(gateText()).toBeUndefined();
    await updated.withdraw(claim);
    expect(hidden().some((path) => existsSync(path))).toBe(false);
    await updated.prepare(record, new Map());
    expect(hidden().every(isBlank)).toBe(true);
    expect(bench.edits(claim.uid)[0]?.hooks).toHaveLength(1);
  });

  it('keeps files that containers have mounted when a gate is added', async () => {
    restart();
    await metadata.prepare(record, new Map());
    await metadata.update(claim, 'vf', devices);
    const inodes = hidden().map((path) => statSync(path).ino);
    restart({ gate });
    await metadata.prepare(record, new Map());
    expect(hidden().map((path) => statSync(path).ino)).toEqual(inodes);
    // New containers wait until the driver has said that the sandbox is still served.
    expect(gateOf()).toBeUndefined();
    await serve(a);
    expect(gateOf()).toEqual({ state: 'served', sandboxId: a });
  });

  it('stores that the gate is closed when content is withdrawn, so that a restart does not open it', async () => {
    await prepareAndServe(a);
    const path = join(bench.dataDir, 'dra-device-metadata/default_fast-net/claim.json');
    const servedBy = () => JSON.parse(readFileSync(path, 'utf8')).servedBy;
    expect(servedBy()).toBe(a);
    await metadata.withdraw(claim);
    expect(servedBy()).toBeNull();
  });

  it('removes hook, gate and empty files when it is started without a gate', async () => {
    await prepareAndServe(a);
    restart();
    await metadata.prepare(record, new Map());
    expect(gateText()).toBeUndefined();
    expect(bench.edits(claim.uid)[0]?.hooks).toBeUndefined();
    await metadata.withdraw(claim);
    expect(hidden().some((path) => existsSync(path))).toBe(false);
    await metadata.update(claim, 'vf', devices);
    await metadata.openGate(claim, a);
    expect(gateText()).toBeUndefined();
  });

  it.each(['', '{}', '{"devices":[{"na', undefined])('rewrites a damaged spec without the hook: %j', async (left) => {
    await prepareAndServe(a);
    const [spec = ''] = bench.files(bench.cdiDir);
    const path = join(bench.cdiDir, spec);
    restart();
    await metadata.restore();
    expect(bench.edits(claim.uid)[0]?.hooks).toHaveLength(1);
    const { mounts } = bench.edits(claim.uid)[0]!;
    if (left === undefined) rmSync(path);
    else writeFileSync(path, left);
    expect(await metadata.restore()).toEqual([]);
    expect(bench.edits(claim.uid)).toEqual([{ mounts }]);
    expect(hidden().some(isBlank)).toBe(false);
    // Nothing but a missing file keeps containers of another sandbox from starting.
    await metadata.withdraw(claim);
    expect(hidden().some((each) => existsSync(each))).toBe(false);
    await serve(b);
    expect([hidden().some(isBlank), metadata.isGated(claim)]).toEqual([false, false]);
  });

  it('opens the gate for a container that began to wait before the driver was restarted without gates', async () => {
    await prepareAndServe(a);
    writeFileSync(join(bench.dataDir, `dra-device-metadata/default_fast-net/waiting.${b}.1`), 'netdra-waiting 1');
    restart();
    await metadata.prepare(record, new Map());
    await metadata.withdraw(claim);
    await metadata.update(claim, 'vf', devices, b);
    expect(gateOf()).toEqual({ state: 'served', sandboxId: b });
  });

  it.each([
    [{ ...gate, program: 'netdra-gate' }, 'gate program "netdra-gate" is not an absolute path'],
    [{ ...gate, timeoutSeconds: 0 }, 'gate timeout of 0 s'],
    [{ ...gate, timeoutSeconds: 120 }, 'gate timeout of 120 s'],
    [{ ...gate, timeoutSeconds: 1.5 }, 'gate timeout of 1.5 s'],
  ])('rejects %j', (options, message) => {
    expect(() => bench.start({ gate: options })).toThrow(message);
  });
});

describe('a gate with metadata disabled', () => {
  it('holds back containers although they get no file', async () => {
    restart({ gate, enabled: false });
    expect(await metadata.prepare(record, new Map())).toEqual(new Map([['vf', `${driver}/metadata=${claim.uid}_vf`]]));
    expect(bench.edits(claim.uid)).toEqual([{ hooks: [expect.objectContaining({ hookName: 'createRuntime' })] }]);
    expect(bench.files(bench.dataDir)).toEqual(['dra-device-metadata/default_fast-net/claim.json']);
    expect(await metadata.update(claim, 'vf', devices)).toEqual({ generation: 0, isWritten: false });
    await metadata.openGate(claim, a);
    expect(gateOf()).toEqual({ state: 'served', sandboxId: a });
    await metadata.withdraw(claim);
    expect(gateText()).toBeUndefined();
    expect(await metadata.countFiles()).toBe(0);
    await metadata.unprepare(claim);
    expect(bench.files()).toEqual([]);
  });

  it('gets files once metadata is enabled', async () => {
    await bench.start({ gate, enabled: false }).prepare(record, new Map());
    await metadata.prepare(record, new Map());
    expect(hidden().every(isBlank)).toBe(true);
  });

  // Found by the simulation. The kubelet makes no call for a pod that takes over a prepared claim, and gives it this device.
  it('leaves its CDI device without the hook when the driver is started without a gate', async () => {
    await bench.start({ gate, enabled: false }).prepare(record, new Map());
    const ungated = bench.start({ enabled: false, marker: 'CLAIM_' });
    expect(await ungated.prepare(record, new Map())).toEqual(new Map());
    expect(bench.edits(claim.uid)).toEqual([{ env: [expect.stringMatching(/^CLAIM_.*=default\/fast-net$/)] }]);
    await ungated.unprepare(claim);
    expect(bench.files()).toEqual([]);
  });

  it('is not created for a claim without deferred requests', async () => {
    restart({ gate, enabled: false });
    const own = [{ driver, pool: 'node-1', name: '0000-3b-02-1' }];
    expect(await metadata.prepare(record, new Map([['vf', own]]))).toEqual(new Map());
    await metadata.openGate(claim, a);
    expect(bench.files()).toEqual([]);
  });
});

it('the text of a gate is two short lines, however long the reason is', () => {
  fc.assert(
    fc.property(fc.string({ unit: codePoint, maxLength: 2000 }), (reason) => {
      const text = formatGate({ state: 'waiting', sandboxId: a, reason });
      expect(text).toMatch(/^netdra-gate 1\nwaiting sandbox-a[^\n\p{Cc}]*\n$/u);
      expect(text.length).toBeLessThan(600);
      expect(text.isWellFormed()).toBe(true);
      expect(parseGate(text)).toMatchObject({ state: 'waiting', sandboxId: a });
    }),
  );
});
