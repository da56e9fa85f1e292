import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { IncidentEntry, IncidentHeader } from '../../../../src/app/incidents/entry.ts';
import { IncidentFiles, listIncidents, maxIncidents } from '../../../../src/app/incidents/incident-files.ts';
import { IncidentRing } from '../../../../src/app/incidents/incident-ring.ts';
import { formatIncidents, readIncident, requestIncident, viewIncidents } from '../../../../src/app/tools/incidents.ts';
import { type Clock, systemClock } from '../../../../src/lib/clock.ts';
import { explain } from '../../../../src/lib/errors.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';
import { plainTerminal } from '../tools/plain-terminal.ts';

const claim = (uid: string) => ({ uid, namespace: 'apps', name: `claim-${uid}` });
const sandbox = (id: string) => ({
  id,
  podUid: `pod-of-${id}`,
  podNamespace: 'apps',
  podName: id,
  netns: `/run/${id}`,
});
const entriesOf = (ring: IncidentRing): IncidentEntry[] =>
  ring
    .text()
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));

describe('IncidentRing', () => {
  it('keeps the newest entries within its size, and of older ones what says which claims and sandboxes exist', async () => {
    const ring = new IncidentRing(50_000);
    let atMs = 0;
    const add = (entry: object) => ring.add({ atMs: atMs++, ...entry } as IncidentEntry);
    for (const uid of ['kept', 'gone']) {
      add({ is: 'prepare', call: atMs, claims: [claim(uid)] });
      add({ is: 'runPodSandbox', call: atMs, sandbox: sandbox(`of-${uid}`) });
      add({ is: 'placed', claimUid: uid, pciAddress: '0000:3b:02.0', sandboxId: `of-${uid}` });
    }
    add({ is: 'deleted', claimUid: 'gone' });
    add({ is: 'removePodSandbox', call: atMs, sandbox: sandbox('of-gone') });
    while (atMs < 20_000) {
      add({ is: 'answer', call: atMs, ms: 1 });
      // It becomes text between two events of the loop.
      if (atMs % 5_000 === 0) await new Promise(setImmediate);
    }
    const entries = entriesOf(ring);
    const gap = entries.findIndex(({ is }) => is === 'gap');
    expect(entries.slice(0, gap).map(({ is, atMs }) => [is, atMs])).toEqual([
      ['prepare', 0],
      ['placed', 2],
      ['runPodSandbox', 1],
    ]);
    expect(entries.at(-1)?.atMs).toBe(19_999);
    expect(ring.dropped + entries.length - gap - 1).toBe(20_000);
    expect(ring.bytes).toBeLessThanOrEqual(50_000);
    expect(ring.bytes).toBeGreaterThan(10_000);
  });

  it('escapes texts of tenants', () => {
    const ring = new IncidentRing();
    ring.add({ atMs: 0, is: 'hung', devices: ['\u001b[31m\u202eab'] });
    expect(entriesOf(ring)).toEqual([{ atMs: 0, is: 'hung', devices: ['\\u001b[31m\\u202eab'] }]);
  });
});

/** A clock whose sleeps end when the test says so. */
function manualClock() {
  const wakes: (() => void)[] = [];
  const clock = {
    nowMs: () => 0,
    sleep: () => new Promise<void>((resolve) => wakes.push(resolve)),
  } as unknown as Clock;
  const wake = async () => {
    for (const each of wakes.splice(0)) each();
    await new Promise(setImmediate);
  };
  return { clock, wake };
}

describe('IncidentFiles', () => {
  const header: Omit<IncidentHeader, 'reason' | 'what' | 'dropped'> = {
    ...{ incident: 1, version: '0.1.0', startedAt: '2026-01-01T00:00:00Z', settings: {}, isGated: true },
  };
  function open(dataDir: string) {
    const logged: object[] = [];
    const log = (fields: object) => void logged.push(fields);
    const logger = { debug: log, info: log, warn: log, error: log };
    const ring = new IncidentRing();
    const manual = manualClock();
    return {
      ring,
      logged,
      ...manual,
      files: new IncidentFiles({ dataDir, ring, header, clock: manual.clock, logger }),
    };
  }

  it('has what happened before and soon after in one file, which only root can read', async () => {
    using dir = tempDir();
    const { files, ring, wake, logged } = open(dir.path);
    ring.add({ atMs: 1, is: 'disconnected' });
    files.request('claim-refused', 'no VF is free');
    files.request('container-refused', 'not ready');
    ring.add({ atMs: 2, is: 'host changed' });
    expect(listIncidents(dir.path)).toEqual([]);
    await wake();
    const [name = ''] = listIncidents(dir.path);
    const file = join(dir.path, 'incidents', name);
    expect(logged).toEqual([{ file, reason: 'claim-refused', what: 'no VF is free' }]);
    expect(statSync(file).mode & 0o777).toBe(0o600);
    const lines = readIncident(dir.path, name).trimEnd().split('\n');
    expect(lines.map((line) => JSON.parse(line))).toEqual([
      { ...header, reason: 'claim-refused', what: 'no VF is free', dropped: 0 },
      { atMs: 1, is: 'disconnected' },
      { atMs: 2, is: 'host changed' },
    ]);
    expect(formatIncidents(plainTerminal, viewIncidents(dir.path))).toMatch(/FILE +WHAT\n\d.*jsonl +no VF is free\n/);
    expect(() => readIncident(dir.path, 'other.jsonl')).toThrow('there is no incident other.jsonl');
  });

  it('writes four at once and then no more, keeps the newest, and writes what is due when the driver stops', async () => {
    using dir = tempDir();
    mkdirSync(join(dir.path, 'incidents'), { recursive: true });
    const old = Array.from({ length: maxIncidents }, (_, index) => `200${index}-01-01T00-00-00.000Z-device-hung.jsonl`);
    for (const name of [...old, 'not one']) writeFileSync(join(dir.path, 'incidents', name), '{}\n');
    const { files, wake } = open(dir.path);
    for (let count = 0; count < 3; count++) {
      files.request('device-hung', 'x');
      await wake();
    }
    files.request('vf-not-restored', 'x');
    files[Symbol.dispose]();
    files.request('claim-refused', 'x');
    await wake();
    const names = listIncidents(dir.path);
    expect(names).toHaveLength(maxIncidents);
    expect(names.slice(0, 4)).toEqual(old.slice(4));
    expect(names.at(-1)).toMatch(/vf-not-restored/);
    expect(readdirSync(join(dir.path, 'incidents'))).toContain('not one');
  });

  it('keeps what it has just written, also when the clock has gone back meanwhile', async () => {
    using dir = tempDir();
    mkdirSync(join(dir.path, 'incidents'), { recursive: true });
    const ofYears = (first: number) =>
      Array.from(
        { length: maxIncidents / 2 },
        (_, index) => `${first + index}-01-01T00-00-00.000Z-1-device-hung.jsonl`,
      );
    const [past, future] = [ofYears(2001), ofYears(9001)];
    for (const name of [...past, ...future]) writeFileSync(join(dir.path, 'incidents', name), '{}\n');
    const { files, wake } = open(dir.path);
    const isOwn = expect.stringMatching(/vf-not-restored/);
    files.request('vf-not-restored', 'x');
    await wake();
    // Whether those of the future are older is not known, but new ones are not to make way for them.
    expect(listIncidents(dir.path)).toEqual([...past, isOwn, ...future.slice(1)]);
    files.request('vf-not-restored', 'y');
    await wake();
    expect(listIncidents(dir.path)).toEqual([...past, isOwn, isOwn, ...future.slice(2)]);
    files[Symbol.dispose]();
  });

  it('writes what has happened lately when a tool asks for it', async () => {
    using dir = tempDir();
    const { files, ring } = open(dir.path);
    ring.add({ atMs: 1, is: 'disconnected' });
    await requestIncident(dir.path);
    const [name = ''] = listIncidents(dir.path);
    expect(viewIncidents(dir.path)).toMatchObject([{ header: { reason: 'requested' } }]);
    expect(readIncident(dir.path, name)).toMatch(/\n{"atMs":1,"is":"disconnected"}\n$/);
    files[Symbol.dispose]();
    const hurried = { nowMs: () => performance.now() * 100, sleep: systemClock.sleep } as Clock;
    expect(await requestIncident(dir.path, hurried).catch(explain)).toMatch(
      /^what has happened lately is not recorded: the driver has not answered within 5 s \(the driver has to run/,
    );
    expect(readdirSync(join(dir.path, 'incidents'))).toEqual([name]);
  });

  it('only warns if the file cannot be written', async () => {
    using dir = tempDir();
    writeFileSync(join(dir.path, 'incidents'), '');
    const { files, wake, logged } = open(dir.path);
    files.request('claim-refused', 'x');
    await wake();
    expect(logged).toEqual([
      expect.objectContaining({ dir: join(dir.path, 'incidents'), err: expect.any(Error) }),
      expect.objectContaining({ reason: 'claim-refused', err: expect.any(Error) }),
    ]);
    expect(explain((logged[1] as { err: Error }).err)).toMatch(/EEXIST|ENOTDIR/);
    expect(readFileSync(join(dir.path, 'incidents'), 'utf8')).toBe('');
  });
});
