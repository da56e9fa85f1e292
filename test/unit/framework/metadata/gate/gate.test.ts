import { existsSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { ClaimSpecs } from '../../../../../src/framework/metadata/files/cdi.ts';
import { ClaimFiles } from '../../../../../src/framework/metadata/files/claim-files.ts';
import { formatGate, parseGate, readGate } from '../../../../../src/framework/metadata/gate/gate.ts';
import { type ClaimMetadata, inspectClaim, RecordFiles } from '../../../../../src/framework/metadata/index.ts';
import { codePoint } from '../../../../doubles/code-point.ts';
import { Bench } from '../bench.ts';
import { claim, documentOf, driver, golden, kernel, podUid, recordOf } from '../samples.ts';

const record = recordOf(kernel);
const { devices } = documentOf(kernel);
const gate = { program: '/var/lib/kubelet/plugins/sriov.netdra.dev/bin/netdra-gate', timeoutSeconds: 100 };
const [a, b] = ['sandbox-a', 'sandbox-b'];
const request = 'data/dra-device-metadata/default_fast-net/vf';

let bench: Bench;
let metadata: ClaimMetadata;
beforeEach(() => {
  bench = new Bench();
  metadata = bench.start({ gate });
});
afterEach(() => bench[Symbol.dispose]());

const gatePath = () => join(bench.dataDir, 'dra-device-metadata/default_fast-net/gate');
const gateText = () => (existsSync(gatePath()) ? readFileSync(gatePath(), 'utf8') : undefined);
const gateOf = () => readGate(bench.dataDir, claim);
/** The files that are hidden while there is nothing to say. */
const hidden = () => [
  join(bench.path, request, 'metadata.json'),
  join(bench.path, request, 'metadata-kep.json'),
  join(bench.downwardApiDir, podUid, 'fast-net.vf.json'),
];
const isBlank = (path: string) => readFileSync(path, 'utf8').trim() === '';
/** As a driver does it for a pod's sandbox. */
async function serve(sandboxId: string) {
  await metadata.update(claim, 'vf', devices);
  await metadata.openGate(claim, sandboxId);
}
async function prepareAndServe(sandboxId: string) {
  await metadata.prepare(record, new Map());
  await serve(sandboxId);
}

describe('a claim with a gate', () => {
  it('has the hook in the CDI spec of its deferred request', async () => {
    await metadata.prepare(record, new Map());
    const [spec] = bench.files(bench.cdiDir);
    const text = bench.read(`cdi/${spec}`).replaceAll(bench.path, '');
    expect(text).toBe(golden('cdi/kernel-gate.golden', text));
  });

  it('has a hook for deferred requests only', async () => {
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

  it('is laid down with empty files, which keep their inode from then on', async () => {
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

  it('says for which sandbox containers may start', async () => {
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

  it('is written only if it changes', async () => {
    await prepareAndServe(a);
    const { ino } = statSync(gatePath());
    await metadata.openGate(claim, a);
    await bench.start({ gate }).openGate(claim, a);
    await metadata.prepare(record, new Map());
    expect(statSync(gatePath()).ino).toBe(ino);
  });

  it('stays open for a sandbox until that one ends, whatever is said of others', async () => {
    await prepareAndServe(b);
    await metadata.endGate(claim, a);
    await metadata.holdGate(claim, a, 'late');
    expect(gateOf()).toEqual({ state: 'served', sandboxId: b });
    await metadata.holdGate(claim, b, 'the VF has gone');
    expect(gateOf()).toMatchObject({ state: 'waiting', sandboxId: b });
  });

  it("ends without the claim's lock, and without undoing what another instance stores meanwhile", async () => {
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

  it('opens when all requests say something, and not before', async () => {
    const requests = { ...record.requests, two: { name: 'two/big', devices: [{ pool: 'node-1', name: 'dev-2' }] } };
    await metadata.prepare({ ...record, requests }, new Map());
    await metadata.update(claim, 'vf', devices);
    await expect(metadata.openGate(claim, a)).rejects.toMatchObject({
      code: 'metadata-not-written',
      message: 'cannot let containers of claim default/fast-net start: request two/big has no metadata yet',
    });
    expect(gateText()).toBeUndefined();
    await metadata.update(claim, 'two', [{ driver, pool: 'node-1', name: 'dev-2' }]);
    await metadata.openGate(claim, a);
    // A request that is no longer prepared does not hold up the gate.
    await metadata.withdraw(claim);
    await prepareAndServe(b);
    expect(gateOf()).toEqual({ state: 'served', sandboxId: b });
  });

  it('refuses to open for a claim that is not prepared, and what is no sandbox id', async () => {
    await expect(metadata.openGate(claim, a)).rejects.toMatchObject({ code: 'metadata-not-prepared' });
    await metadata.prepare(record, new Map());
    await metadata.update(claim, 'vf', devices);
    for (const id of ['', 'a b', 'a\nserved b', '\u001b', 'x'.repeat(200), 'ä']) {
      await expect(metadata.openGate(claim, id)).rejects.toMatchObject({ code: 'metadata-name-invalid' });
    }
    expect(gateText()).toBeUndefined();
  });

  it('treats a damaged gate file as closed', async () => {
    await prepareAndServe(a);
    for (const text of ['', 'netdra-gate 2\nserved sandbox-a\n', 'netdra-gate 1\nserved\n', '\0']) {
      writeFileSync(gatePath(), text);
      expect(gateOf()).toBeUndefined();
    }
    await metadata.openGate(claim, a);
    expect(gateOf()).toEqual({ state: 'served', sandboxId: a });
  });

  it('follows from the record with its hook and its files, as do those of an older version', async () => {
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
    // An older version has only the gate.
    await serve(a);
    const recordPath = join(gatePath(), '../claim.json');
    const { servedBy, ...older } = JSON.parse(readFileSync(recordPath, 'utf8'));
    writeFileSync(recordPath, JSON.stringify(older));
    await bench.start({ gate }).restore();
    expect([servedBy, gateText()]).toEqual([a, 'netdra-gate 1\nserved sandbox-a\n']);
    await bench.start().restore();
    expect(bench.edits(claim.uid)[0]?.hooks).toHaveLength(1);
    writeFileSync(recordPath, '{');
    expect(await bench.start({ gate }).restore()).toMatchObject([{ code: 'metadata-malformed' }]);
  });

  it('closes it when a boot has ended its sandbox, and when the claim goes', async () => {
    metadata = bench.start({ gate, bootId: 'boot-1' });
    await prepareAndServe(a);
    await bench.start({ gate, bootId: 'boot-2' }).prepare(record, new Map());
    expect(gateText()).toBeUndefined();
    expect(hidden().every(isBlank)).toBe(true);
    await serve(a);
    await metadata.unprepare(claim);
    expect(bench.files()).toEqual([]);
  });

  it('closes its gate when metadata is switched on, and opens it with the content, in the same sandbox', async () => {
    metadata = bench.start({ gate, enabled: false });
    await metadata.prepare(record, new Map());
    await metadata.openGate(claim, a);
    metadata = bench.start({ gate });
    await metadata.prepare(record, new Map());
    expect([bench.mounts(claim.uid).size > 0, hidden().every(isBlank)]).toEqual([true, true]);
    expect(gateOf()).toBeUndefined();
    await serve(a);
    expect(hidden().some(isBlank)).toBe(false);
    expect(gateOf()).toEqual({ state: 'served', sandboxId: a });
  });

  it('closes its gate when a request is added that has no content yet', async () => {
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

  it('leaves its gate open when a layout is added: that gets the content at once', async () => {
    metadata = bench.start({ gate, layouts: ['attributes-json'] });
    await prepareAndServe(a);
    metadata = bench.start({ gate });
    await metadata.prepare(record, new Map());
    expect(hidden().some(isBlank)).toBe(false);
    expect(gateOf()).toEqual({ state: 'served', sandboxId: a });
  });

  it('does not trust an open gate that was left in its directory', async () => {
    await prepareAndServe(a);
    rmSync(join(gatePath(), '../claim.json'));
    await metadata.prepare({ ...record, claim: { ...claim, uid: 'next' } }, new Map());
    expect(gateText()).toBeUndefined();
  });

  it.each<[string, (path: string) => void]>([
    ['is damaged', (path) => writeFileSync(path, '')],
    ['is gone', (path) => rmSync(path)],
  ])('closes its gate until it is served again when its record %s and is written anew', async (_, damage) => {
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

  it('keeps its files in the directory of its first pod when its record is damaged and it has passed to another', async () => {
    await prepareAndServe(a);
    writeFileSync(join(bench.downwardApiDir, 'readme'), 'of another program');
    writeFileSync(join(gatePath(), '../claim.json'), '');
    const recovered: unknown[] = [];
    metadata = bench.start({ gate, onRecovered: (of, problem) => recovered.push(of, problem) });
    await metadata.prepare({ ...record, podUid: 'next' }, new Map());
    await serve(b);
    expect(bench.files(bench.downwardApiDir)).toEqual([`${podUid}/fast-net.vf.json`, 'readme']);
    const path = join(gatePath(), '../claim.json');
    expect(recovered).toEqual([claim, expect.objectContaining({ code: 'metadata-malformed', path })]);
    writeFileSync(path, '');
    await metadata.unprepare(claim);
    expect(bench.files()).toEqual(['pods/readme']);
  });

  it('begins with generation 1 after a damaged record if its files were never written', async () => {
    await metadata.prepare(record, new Map());
    writeFileSync(join(gatePath(), '../claim.json'), '');
    await metadata.prepare(record, new Map());
    expect(await metadata.update(claim, 'vf', devices)).toMatchObject({ generation: 1 });
  });

  it('closes its gate when it is withdrawn with a record that cannot be read, and reports the record', async () => {
    await prepareAndServe(a);
    writeFileSync(join(gatePath(), '../claim.json'), '');
    await expect(metadata.withdraw(claim)).rejects.toMatchObject({ code: 'metadata-malformed' });
    expect(gateText()).toBeUndefined();
  });

  it('stays open, with its files, whatever is asked of another claim of its name', async () => {
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

  it('keeps the reason why containers wait, and the end of a sandbox, when it is prepared again', async () => {
    await metadata.prepare(record, new Map());
    await metadata.holdGate(claim, a, 'the VF is in another pod');
    await metadata.prepare(record, new Map());
    expect(gateOf()).toMatchObject({ state: 'waiting', reason: 'the VF is in another pod' });
    await metadata.endGate(claim, a);
    await metadata.prepare(record, new Map());
    expect(gateOf()).toEqual({ state: 'ended', sandboxId: a });
  });

  it('reports each prepare after which its containers wait, so that a sandbox that is there is served again', async () => {
    const pending: string[] = [];
    const open = (enabled: boolean) => bench.start({ gate, enabled, onPending: ({ uid }) => pending.push(uid) });
    metadata = open(false);
    await metadata.prepare(record, new Map());
    expect(pending.splice(0)).toEqual([claim.uid]);
    await metadata.openGate(claim, a);
    await metadata.prepare(record, new Map());
    expect(pending).toEqual([]);
    metadata = open(true);
    await metadata.prepare(record, new Map());
    expect(pending.splice(0)).toEqual([claim.uid]);
    await serve(a);
    await metadata.prepare(record, new Map());
    await metadata.prepare({ ...record, claim: { ...claim, uid: 'next' } }, new Map([['vf', devices]]));
    expect(pending).toEqual([]);
  });

  it('is inspected: blank files are pending, missing ones are missing', async () => {
    await metadata.prepare(record, new Map());
    const states = async () => (await inspectClaim(driver, bench, claim))?.files.map(({ state }) => state);
    expect(await states()).toEqual(['pending', 'pending', 'current', 'pending']);
    await metadata.update(claim, 'vf', devices);
    expect(await states()).toEqual(['current', 'current', 'current', 'current']);
    for (const path of hidden()) writeFileSync(path, '  \n');
    expect(await states()).toEqual(['missing', 'missing', 'current', 'missing']);
  });
});

describe('in whatever order the driver is killed', () => {
  /** The first call of a kind that fails, and with it the process. */
  function killedAt<T>(part: { prototype: T }, method: keyof T & string) {
    const spy = vi.spyOn(part.prototype as Record<string, () => never>, method);
    spy.mockImplementationOnce(() => {
      throw new Error('killed');
    });
    return spy;
  }

  it('closes the gate before the files of a layout that was switched on are there', async () => {
    metadata = bench.start({ gate, enabled: false });
    await metadata.prepare(record, new Map());
    await metadata.openGate(claim, a);
    metadata = bench.start({ gate });
    {
      using _spy = killedAt(ClaimSpecs, 'write');
      await expect(metadata.prepare(record, new Map())).rejects.toThrow('killed');
    }
    expect([gateText(), hidden().some((path) => existsSync(path))]).toEqual([undefined, false]);
    // Another instance, which has metadata off, opens it for the content that it knows: none is mounted yet.
    await bench.start({ gate, enabled: false }).openGate(claim, a);
    {
      using _spy = killedAt(ClaimFiles, 'layDown');
      await expect(metadata.prepare(record, new Map())).rejects.toThrow('killed');
    }
    expect([gateText(), hidden().some((path) => existsSync(path))]).toEqual([undefined, false]);
    await expect(bench.start({ gate, enabled: false }).openGate(claim, a)).rejects.toThrow('has no metadata yet');
  });

  it('opens the gate after the files have their content', async () => {
    await metadata.prepare(record, new Map());
    using _spy = killedAt(ClaimFiles, 'layDown');
    await expect(metadata.openGate(claim, a, new Map([['vf', devices]]))).rejects.toThrow('killed');
    expect([gateText(), hidden().every(isBlank)]).toEqual([undefined, true]);
  });

  it('knows that content is withdrawn before a file shows it', async () => {
    await prepareAndServe(a);
    {
      using _spy = killedAt(ClaimFiles, 'layDown');
      await expect(metadata.withdraw(claim)).rejects.toThrow('killed');
    }
    metadata = bench.start({ gate });
    expect([metadata.read(claim, 'vf'), gateText()]).toEqual([undefined, undefined]);
    await metadata.restore();
    expect(hidden().every(isBlank)).toBe(true);
    await expect(metadata.openGate(claim, b)).rejects.toThrow('has no metadata yet');
  });

  it('has the hook in the spec before there is an empty file to mount', async () => {
    // As an older version has laid it down.
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

  it('removes the empty files before the hook goes from the spec', async () => {
    await metadata.prepare(record, new Map());
    using _spy = killedAt(ClaimSpecs, 'write');
    await expect(bench.start().prepare(record, new Map())).rejects.toThrow('killed');
    expect(hidden().some((path) => existsSync(path))).toBe(false);
    expect(bench.edits(claim.uid)[0]?.hooks).toHaveLength(1);
  });
});

describe('a driver started with a gate, or without', () => {
  it('leaves claims as they are until they are prepared again', async () => {
    metadata = bench.start();
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

  it('keeps what containers have mounted when the gate comes', async () => {
    metadata = bench.start();
    await metadata.prepare(record, new Map());
    await metadata.update(claim, 'vf', devices);
    const inodes = hidden().map((path) => statSync(path).ino);
    metadata = bench.start({ gate });
    await metadata.prepare(record, new Map());
    expect(hidden().map((path) => statSync(path).ino)).toEqual(inodes);
    // New containers wait until the driver has said that the sandbox is still served.
    expect(gateOf()).toBeUndefined();
    await serve(a);
    expect(gateOf()).toEqual({ state: 'served', sandboxId: a });
  });

  it('takes hook, gate and empty files away when the option has gone', async () => {
    await prepareAndServe(a);
    metadata = bench.start();
    await metadata.prepare(record, new Map());
    expect(gateText()).toBeUndefined();
    expect(bench.edits(claim.uid)[0]?.hooks).toBeUndefined();
    await metadata.withdraw(claim);
    expect(hidden().some((path) => existsSync(path))).toBe(false);
    await metadata.update(claim, 'vf', devices);
    await metadata.openGate(claim, a);
    expect(gateText()).toBeUndefined();
  });

  it.each([
    [{ ...gate, program: 'netdra-gate' }, 'gate program "netdra-gate" is not an absolute path'],
    [{ ...gate, timeoutSeconds: 0 }, 'gate timeout of 0 s'],
    [{ ...gate, timeoutSeconds: 120 }, 'gate timeout of 120 s'],
    [{ ...gate, timeoutSeconds: 1.5 }, 'gate timeout of 1.5 s'],
  ])('refuses %j', (options, message) => {
    expect(() => bench.start({ gate: options })).toThrow(message);
  });
});

describe('while metadata is off', () => {
  it('the gate holds without any file', async () => {
    metadata = bench.start({ gate, enabled: false });
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

  it('claims get files when it is on again, and nothing is left of the hook when the gate has gone', async () => {
    await bench.start({ gate, enabled: false }).prepare(record, new Map());
    await metadata.prepare(record, new Map());
    expect(hidden().every(isBlank)).toBe(true);
    await metadata.unprepare(claim);
    await bench.start({ gate, enabled: false }).prepare(record, new Map());
    expect(await bench.start({ enabled: false }).prepare(record, new Map())).toEqual(new Map());
    expect(bench.files()).toEqual(['data/dra-device-metadata/default_fast-net/claim.json']);
  });

  it('nothing is laid down for a claim without deferred requests', async () => {
    metadata = bench.start({ gate, enabled: false });
    const own = [{ driver, pool: 'node-1', name: '0000-3b-02-1' }];
    expect(await metadata.prepare(record, new Map([['vf', own]]))).toEqual(new Map());
    await metadata.openGate(claim, a);
    expect(bench.files()).toEqual([]);
  });
});

describe('the text of a gate', () => {
  it('is two short lines whatever the reason is', () => {
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
});
