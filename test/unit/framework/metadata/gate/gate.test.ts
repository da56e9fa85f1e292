import { existsSync, mkdirSync, readFileSync, rmdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { formatGate } from '../../../../../src/framework/metadata/gate/gate.ts';
import { inspectClaim, RecordFiles } from '../../../../../src/framework/metadata/index.ts';
import { claim, driver, golden, podUid } from '../samples.ts';
import {
  a,
  b,
  bench,
  devices,
  gate,
  gateOf,
  gatePath,
  gateText,
  hidden,
  isBlank,
  metadata,
  prepareAndServe,
  record,
  request,
  restart,
  serve,
  useGate,
} from './gate-bench.ts';

useGate();

describe('a claim with a start gate', () => {
  it('has the hook in the CDI spec of its deferred request', async () => {
    await metadata.prepare(record, new Map());
    const [spec] = bench.files(bench.cdiDir);
    const text = bench.read(`cdi/${spec}`).replaceAll(bench.path, '');
    expect(text).toBe(golden('cdi/kernel-gate.golden', text));
  });

  it('has a hook only for deferred requests', async () => {
    const requests = { ...record.requests, other: { name: 'other', devices: [{ pool: 'node-1', name: 'dev-2' }] } };
    const other = [{ driver, pool: 'node-1', name: 'dev-2' }];
    const ids = await metadata.prepare({ ...record, requests }, new Map([['other', other]]));
    expect([...ids.keys()].sort()).toEqual(['other', 'vf']);
    expect(bench.edits(claim.uid).map(({ hooks = [] }) => hooks.length)).toEqual([0, 1]);
    // It does not keep anybody from being let in, and is hidden as without a gate.
    await serve(a);
    await metadata.withdraw(claim);
    expect(existsSync(join(bench.path, request, '../other/metadata.json'))).toBe(false);
  });

  it('is prepared with empty files, whose inode never changes', async () => {
    await metadata.prepare(record, new Map());
    expect(hidden().map((path) => readFileSync(path, 'utf8'))).toEqual(['', '', '']);
    const inodes = hidden().map((path) => statSync(path).ino);
    expect(await metadata.countFiles()).toBe(0);
    expect(await metadata.update(claim, 'vf', devices)).toEqual({ generation: 1, isWritten: true });
    expect(await metadata.countFiles()).toBe(1);
    await metadata.withdraw(claim);
    expect(hidden().every(isBlank)).toBe(true);
    expect(await metadata.countFiles()).toBe(0);
    expect(await metadata.read(claim, 'vf')).toBeUndefined();
    expect(await metadata.update(claim, 'vf', devices)).toEqual({ generation: 2, isWritten: true });
    expect(hidden().map((path) => statSync(path).ino)).toEqual(inodes);
    await metadata.prepare(record, new Map());
    expect(hidden().map((path) => statSync(path).ino)).toEqual(inodes);
    expect(await metadata.read(claim, 'vf')).toMatchObject({ generation: 2 });
  });

  it('names in its gate the sandbox whose containers may start', async () => {
    await metadata.prepare(record, new Map());
    expect([gateText(), gateOf()]).toEqual([undefined, undefined]);
    await metadata.holdGate(claim, a, 'the VF is in another pod');
    expect(gateText()).toBe('netdra-gate 1\nwaiting sandbox-a the VF is in another pod\n');
    expect(gateOf()).toEqual({
      state: 'waiting',
      sandboxId: a,
      reason: 'the VF is in another pod',
    });
    await serve(a);
    expect(gateText()).toBe('netdra-gate 1\nserved sandbox-a\n');
    expect(gateOf()).toEqual({ state: 'served', sandboxId: a });
    await metadata.endGate(claim, a);
    expect(gateText()).toBe('netdra-gate 1\nended sandbox-a\n');
    expect(gateOf()).toEqual({ state: 'ended', sandboxId: a });
    // For what runs on the node as root, and for those who look.
    expect(statSync(gatePath()).mode & 0o777).toBe(0o644);
  });

  it('has a gate file that is written only on changes', async () => {
    await prepareAndServe(a);
    const { ino } = statSync(gatePath());
    await metadata.openGate(claim, a);
    await bench.start({ gate }).openGate(claim, a);
    await metadata.prepare(record, new Map());
    expect(statSync(gatePath()).ino).toBe(ino);
  });

  it('keeps its gate open for one sandbox, whatever happens to other sandboxes', async () => {
    await prepareAndServe(b);
    await metadata.endGate(claim, a);
    await metadata.holdGate(claim, a, 'late');
    expect(gateOf()).toEqual({ state: 'served', sandboxId: b });
    await metadata.holdGate(claim, b, 'the VF has gone');
    expect(gateOf()).toMatchObject({ state: 'waiting', sandboxId: b });
  });

  it('gets a sandbox marked as ended by the withdrawal, even if the gate was open for another sandbox', async () => {
    for (const served of [a, b]) {
      await prepareAndServe(served);
      await metadata.withdraw(claim, ['vf'], a);
      expect(gateOf()).toEqual({ state: 'ended', sandboxId: a });
      expect(hidden().every(isBlank)).toBe(true);
    }
    await expect(metadata.withdraw(claim, ['vf'], 'a b')).rejects.toMatchObject({ code: 'metadata-name-invalid' });
  });

  it('can have its sandbox marked as ended without the lock, and keeps concurrent changes of another instance', async () => {
    await prepareAndServe(a);
    class Records extends RecordFiles {
      together(task: () => void): void {
        void metadata.withdraw(claim);
        task();
      }
    }
    await bench.start({ gate, records: new Records(bench.dataDir) }).endGate(claim, a);
    expect(metadata.read(claim, 'vf')).toBeUndefined();
  });

  it('keeps its gate closed while the file of one of its requests cannot be written', async () => {
    const second = [{ driver, pool: 'node-1', name: 'dev-2' }];
    const requests = { ...record.requests, two: { name: 'two', devices: [{ pool: 'node-1', name: 'dev-2' }] } };
    await metadata.prepare({ ...record, requests }, new Map());
    const [path = ''] = hidden();
    rmSync(path);
    mkdirSync(path);
    await expect(metadata.update(claim, 'vf', devices, a)).rejects.toMatchObject({ code: 'metadata-io', path });
    for (const _attempt of [1, 2]) {
      await expect(metadata.update(claim, 'two', second, a)).rejects.toMatchObject({ code: 'metadata-io', path });
      expect(gateOf()).toBeUndefined();
    }
    rmdirSync(path);
    await metadata.update(claim, 'two', second, a);
    expect([gateOf(), isBlank(path)]).toEqual([{ state: 'served', sandboxId: a }, false]);
  });

  it('has a closed gate until all of its requests have been updated for the sandbox', async () => {
    const second = [{ driver, pool: 'node-1', name: 'dev-2' }];
    const requests = { ...record.requests, two: { name: 'two/big', devices: [{ pool: 'node-1', name: 'dev-2' }] } };
    const updateBoth = async (sandboxId: string) => {
      await metadata.update(claim, 'vf', devices, sandboxId);
      await metadata.update(claim, 'vf', devices, sandboxId);
      await metadata.update(claim, 'two', second);
      const before = gateOf();
      await metadata.update(claim, 'two', second, sandboxId);
      expect(gateOf()).toEqual({ state: 'served', sandboxId });
      return before;
    };
    await metadata.prepare({ ...record, requests }, new Map());
    expect(await updateBoth(a)).toBeUndefined();
    // Content for another sandbox does not count, nor what was said before the gate was held.
    expect(await updateBoth(b)).toEqual({ state: 'served', sandboxId: a });
    await metadata.holdGate(claim, b, 'late');
    await metadata.update(claim, 'vf', devices, b);
    restart({ gate });
    await metadata.holdGate(claim, b, 'late');
    await metadata.update(claim, 'two', second, b);
    expect(gateOf()).toMatchObject({ state: 'waiting' });
    await metadata.update(claim, 'vf', devices, b);
    expect(gateOf()).toEqual({ state: 'served', sandboxId: b });
    // A request that is no longer prepared does not hold up the gate.
    await metadata.withdraw(claim);
    await prepareAndServe(a);
    expect(gateOf()).toEqual({ state: 'served', sandboxId: a });
  });

  it('has a closed gate while a request has no metadata', async () => {
    await metadata.prepare(record, new Map());
    await expect(metadata.openGate(claim, a)).rejects.toMatchObject({
      code: 'metadata-not-written',
      message: 'cannot let containers of claim default/fast-net start: request vf has no metadata yet',
    });
    expect(gateText()).toBeUndefined();
  });

  it('has a closed gate while it is not prepared, and for an invalid sandbox ID', async () => {
    await expect(metadata.openGate(claim, a)).rejects.toMatchObject({ code: 'metadata-not-prepared' });
    await metadata.prepare(record, new Map());
    await metadata.update(claim, 'vf', devices);
    for (const id of ['', 'a b', 'a\nserved b', '\u001b', 'x'.repeat(200), 'ä']) {
      const expected = { code: 'metadata-name-invalid' };
      await expect(metadata.openGate(claim, id)).rejects.toMatchObject(expected);
      await expect(metadata.update(claim, 'vf', devices, id)).rejects.toMatchObject(expected);
    }
    expect(gateText()).toBeUndefined();
  });

  it('has a closed gate if the gate file is damaged', async () => {
    await prepareAndServe(a);
    for (const text of ['', 'netdra-gate 2\nserved sandbox-a\n', 'netdra-gate 1\nserved\n', '\0']) {
      writeFileSync(gatePath(), text);
      expect(gateOf()).toBeUndefined();
    }
    await metadata.openGate(claim, a);
    expect(gateOf()).toEqual({ state: 'served', sandboxId: a });
  });

  it('gets hook and files back from its record', async () => {
    await prepareAndServe(a);
    const damage = () => {
      for (const path of [gatePath(), ...hidden()]) rmSync(path);
      for (const spec of bench.files(bench.cdiDir)) writeFileSync(join(bench.cdiDir, spec), '{}');
    };
    damage();
    expect(await bench.start({ gate }).restore()).toEqual([]);
    // It may have been closed just now, for a VF that has left the pod.
    expect([gateText(), hidden().some(isBlank), bench.edits(claim.uid)[0]?.hooks?.length]).toEqual([
      undefined,
      false,
      1,
    ]);
    await bench.start({ gate }).openGate(claim, a);
    expect(gateText()).toBe('netdra-gate 1\nserved sandbox-a\n');
    const { ino } = statSync(join(bench.cdiDir, String(bench.files(bench.cdiDir)[0])));
    await bench.start({ gate }).restore();
    expect(statSync(join(bench.cdiDir, String(bench.files(bench.cdiDir)[0]))).ino).toBe(ino);
    // Killed when the record named another sandbox, and before the gate did.
    writeFileSync(gatePath(), formatGate({ state: 'served', sandboxId: b }));
    await bench.start({ gate }).restore();
    expect(gateText()).toBeUndefined();
    await bench.start({ gate }).openGate(claim, a);
    damage();
    await metadata.withdraw(claim);
    writeFileSync(gatePath(), formatGate({ state: 'served', sandboxId: b }));
    await bench.start({ gate }).restore();
    expect([gateText(), hidden().every(isBlank)]).toEqual([undefined, true]);
    await bench.start().restore();
    expect(bench.edits(claim.uid)[0]?.hooks).toHaveLength(1);
    const recordPath = join(gatePath(), '../claim.json');
    writeFileSync(recordPath, '{');
    expect(await bench.start({ gate }).restore()).toMatchObject([{ code: 'metadata-malformed' }]);
  });

  it('has a closed gate after a reboot, and no files after it is unprepared', async () => {
    restart({ gate, bootId: 'boot-1' });
    await prepareAndServe(a);
    await bench.start({ gate, bootId: 'boot-2' }).prepare(record, new Map());
    expect(gateText()).toBeUndefined();
    expect(hidden().every(isBlank)).toBe(true);
    await serve(a);
    await metadata.unprepare(claim);
    expect(bench.files()).toEqual([]);
  });

  it('has a closed gate after metadata is enabled, until the files have content in the same sandbox', async () => {
    restart({ gate, enabled: false });
    await metadata.prepare(record, new Map());
    await metadata.openGate(claim, a);
    restart({ gate });
    await metadata.prepare(record, new Map());
    expect([bench.mounts(claim.uid).size > 0, hidden().every(isBlank)]).toEqual([true, true]);
    expect(gateOf()).toBeUndefined();
    await serve(a);
    expect(hidden().some(isBlank)).toBe(false);
    expect(gateOf()).toEqual({ state: 'served', sandboxId: a });
  });

  it('has a closed gate after a request without content is added', async () => {
    await prepareAndServe(a);
    const two = [{ pool: 'node-1', name: 'dev-2' }];
    await metadata.prepare(
      { ...record, requests: { ...record.requests, two: { name: 'two', devices: two } } },
      new Map(),
    );
    expect(gateOf()).toBeUndefined();
    await expect(metadata.openGate(claim, a)).rejects.toMatchObject({ code: 'metadata-not-written' });
    await metadata.update(claim, 'two', [{ driver, pool: 'node-1', name: 'dev-2' }]);
    await metadata.openGate(claim, a);
    expect(gateOf()).toEqual({ state: 'served', sandboxId: a });
  });

  it('keeps its gate open when a layout is added, and gets the file of that layout at once', async () => {
    restart({ gate, layouts: ['attributes-json'] });
    await prepareAndServe(a);
    restart({ gate });
    await metadata.prepare(record, new Map());
    expect(hidden().some(isBlank)).toBe(false);
    expect(gateOf()).toEqual({ state: 'served', sandboxId: a });
  });

  it('ignores an open gate file that was left in its directory', async () => {
    await prepareAndServe(a);
    rmSync(join(gatePath(), '../claim.json'));
    await metadata.prepare({ ...record, claim: { ...claim, uid: 'next' } }, new Map());
    expect(gateText()).toBeUndefined();
  });

  it.each<[string, (path: string) => void]>([
    ['is damaged', (path) => writeFileSync(path, '')],
    ['is gone', (path) => rmSync(path)],
  ])('has a closed gate after its record %s, until it is served again', async (_, damage) => {
    await prepareAndServe(a);
    const inodes = hidden().map((path) => statSync(path).ino);
    damage(join(gatePath(), '../claim.json'));
    await metadata.prepare(record, new Map());
    expect([gateOf(), hidden().every(isBlank)]).toEqual([undefined, true]);
    await serve(a);
    expect(gateOf()).toEqual({ state: 'served', sandboxId: a });
    expect(await metadata.read(claim, 'vf')).toMatchObject({ generation: 2 });
    expect(hidden().map((path) => statSync(path).ino)).toEqual(inodes);
  });

  it("keeps its files in the first pod's directory when it passes to another pod with a damaged record", async () => {
    await prepareAndServe(a);
    writeFileSync(join(bench.downwardApiDir, 'readme'), 'of another program');
    writeFileSync(join(gatePath(), '../claim.json'), '');
    const recovered: unknown[] = [];
    restart({ gate, onRecovered: (of, problem) => recovered.push(of, problem) });
    await metadata.prepare({ ...record, podUid: 'next' }, new Map());
    await serve(b);
    const pods = [podUid, 'next'].map((uid) => `${uid}/fast-net.vf.json`);
    expect(bench.files(bench.downwardApiDir)).toEqual([...pods, 'readme']);
    const path = join(gatePath(), '../claim.json');
    expect(recovered).toEqual([claim, expect.objectContaining({ code: 'metadata-malformed', path })]);
    writeFileSync(path, '');
    await metadata.unprepare(claim);
    expect(bench.files()).toEqual(['pods/readme']);
  });

  it('starts with generation 1 if its record is damaged and its files were never written', async () => {
    await metadata.prepare(record, new Map());
    writeFileSync(join(gatePath(), '../claim.json'), '');
    await metadata.prepare(record, new Map());
    expect(await metadata.update(claim, 'vf', devices)).toMatchObject({ generation: 1 });
  });

  it('has a closed gate after a withdrawal that fails because its record is unreadable', async () => {
    await prepareAndServe(a);
    writeFileSync(join(gatePath(), '../claim.json'), '');
    await expect(metadata.withdraw(claim)).rejects.toMatchObject({ code: 'metadata-malformed' });
    expect(gateText()).toBeUndefined();
  });

  it('keeps its gate and files, whatever happens to another claim of the same name', async () => {
    await prepareAndServe(a);
    const files = () => bench.files().map((path) => [path, bench.read(path)]);
    const before = files();
    const other = { ...claim, uid: 'other-uid' };
    expect([metadata.read(other, 'vf'), metadata.isGated(other), metadata.isRecorded(other)]).toEqual([
      undefined,
      false,
      false,
    ]);
    await expect(metadata.update(other, 'vf', devices)).rejects.toThrow(
      `prepared with UID ${claim.uid}, not other-uid`,
    );
    await expect(metadata.openGate(other, b)).rejects.toThrow(`prepared with UID ${claim.uid}, not other-uid`);
    await metadata.holdGate(other, a, 'no');
    await metadata.endGate(other, a);
    await metadata.withdraw(other);
    await metadata.unprepare(other);
    expect([gateOf(), files()]).toEqual([{ state: 'served', sandboxId: a }, before]);
  });

  it('keeps the waiting reason and the end of its sandbox when it is prepared again', async () => {
    await metadata.prepare(record, new Map());
    await metadata.holdGate(claim, a, 'the VF is in another pod');
    await metadata.prepare(record, new Map());
    expect(gateOf()).toMatchObject({ state: 'waiting', reason: 'the VF is in another pod' });
    await metadata.endGate(claim, a);
    await metadata.prepare(record, new Map());
    expect(gateOf()).toEqual({ state: 'ended', sandboxId: a });
  });

  it('reports each prepare after which containers wait, so that an existing sandbox is served again', async () => {
    const pending: string[] = [];
    const open = (enabled: boolean) => restart({ gate, enabled, onPending: ({ uid }) => pending.push(uid) });
    open(false);
    await metadata.prepare(record, new Map());
    expect(pending.splice(0)).toEqual([claim.uid]);
    await metadata.openGate(claim, a);
    await metadata.prepare(record, new Map());
    expect(pending).toEqual([]);
    open(true);
    await metadata.prepare(record, new Map());
    expect(pending.splice(0)).toEqual([claim.uid]);
    await serve(a);
    await metadata.prepare(record, new Map());
    await metadata.prepare({ ...record, claim: { ...claim, uid: 'next' } }, new Map([['vf', devices]]));
    expect(pending).toEqual([]);
  });

  it('reports blank files as pending and missing files as missing on inspection', async () => {
    await metadata.prepare(record, new Map());
    const states = async () => (await inspectClaim(driver, bench, claim))?.files.map(({ state }) => state);
    expect(await states()).toEqual(['pending', 'pending', 'current', 'pending']);
    await metadata.update(claim, 'vf', devices);
    expect(await states()).toEqual(['current', 'current', 'current', 'current']);
    for (const path of hidden()) writeFileSync(path, '  \n');
    expect(await states()).toEqual(['missing', 'missing', 'current', 'missing']);
  });
});
