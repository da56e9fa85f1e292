import { mkdirSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { parseWaitingSandbox } from '../../../../../src/framework/metadata/gate/waiting-sandbox.ts';
import type { ClaimMetadata } from '../../../../../src/framework/metadata/index.ts';
import { Bench } from '../bench.ts';
import { claim, recordOf, samples } from '../samples.ts';

const record = recordOf(samples.kernel as NonNullable<typeof samples.kernel>);
const gate = { program: '/var/lib/kubelet/plugins/sriov.netdra.dev/bin/netdra-gate', timeoutSeconds: 100 };
const pod = { podUid: 'b2a1-uid', podNamespace: 'apps', podName: 'web.0' };
const netnsPath = '/var/run/netns/cni-0a1b';
const head = 'netdra-waiting 1\npodUid b2a1-uid\npodNamespace apps\npodName web.0\n';
const text = `${head}netns ${netnsPath}\n`;

describe('an announcement of a waiting sandbox', () => {
  it('contains the sandbox, its pod and, if found, its network namespace', () => {
    expect(parseWaitingSandbox('s1', text)).toEqual({ sandboxId: 's1', ...pod, netnsPath });
    expect(parseWaitingSandbox('s1', head)).toEqual({ sandboxId: 's1', ...pod });
    expect(parseWaitingSandbox('s1', `${head}netns /run/netns/0a1b\n`)?.netnsPath).toBe('/run/netns/0a1b');
  });

  it.each([
    ['it is empty', ''],
    ['it has another version', text.replace('waiting 1', 'waiting 2')],
    ['it is truncated', text.slice(0, -1)],
    ['a line is missing', text.replace('podName web.0\n', '')],
    ['it has an additional line', `${text}more x\n`],
    [
      'its lines are in another order',
      text.replace('podUid b2a1-uid\n', '').replace('podName ', 'podUid b2a1-uid\npodName '),
    ],
    ['its pod name contains a slash', text.replace('web.0', '../web')],
    ['its pod name consists of dots', text.replace('web.0', '..')],
    ['its pod name is too long', text.replace('web.0', 'x'.repeat(254))],
    ['its namespace is outside the directory of namespaces', text.replace(netnsPath, '/proc/1/ns/net')],
    ['its namespace path leads upwards', text.replace('cni-0a1b', '..')],
    ['its namespace path leads to a subdirectory', text.replace('cni-0a1b', 'a/b')],
    ['it ends with an empty line', `${text}\n`],
  ])('is rejected if netdra-gate cannot have written it: %s', (_what, wrong) => {
    expect(parseWaitingSandbox('s1', wrong)).toBeUndefined();
  });

  it.each(['', 'a b', 'a/b', 'a\n', 'x'.repeat(129)])('is rejected if its sandbox ID is %j', (id) => {
    expect(parseWaitingSandbox(id, text)).toBeUndefined();
  });

  it('is accepted only if it contains nothing but plain names', () => {
    const name = fc.stringMatching(/^[\w.-]{1,60}$/).filter((each) => !/^\.{1,2}$/.test(each));
    const noise = fc.oneof(name, fc.string({ maxLength: 20 }));
    fc.assert(
      fc.property(noise, noise, noise, noise, noise, (sandboxId, podUid, podNamespace, podName, netns) => {
        const written = `netdra-waiting 1\npodUid ${podUid}\npodNamespace ${podNamespace}\npodName ${podName}\nnetns /run/netns/${netns}\n`;
        const found = parseWaitingSandbox(sandboxId, written);
        const isPlain =
          [sandboxId, netns].every((each) => /^[\w.-]+$/.test(each)) &&
          [podUid, podNamespace, podName].every((each) => /^[0-9A-Za-z][\w.-]*$/.test(each));
        const facts = { sandboxId, podUid, podNamespace, podName, netnsPath: `/run/netns/${netns}` };
        expect(found).toEqual(isPlain && !/^\.{1,2}$/.test(netns) ? facts : undefined);
      }),
    );
  });
});

describe('ClaimMetadata.waiting', () => {
  const now = new Date('2026-03-01T12:00:00Z');
  let bench: Bench;
  let metadata: ClaimMetadata;
  let claimDir: string;
  beforeEach(async () => {
    bench = new Bench();
    metadata = bench.start({ gate, now: () => now });
    claimDir = join(bench.dataDir, 'dra-device-metadata/default_fast-net');
    await metadata.prepare(record, new Map());
  });
  afterEach(() => bench[Symbol.dispose]());

  function write(sandboxId: string, content = text, ageMs = 1_000): void {
    const path = join(claimDir, `waiting.${sandboxId}.4711`);
    const time = new Date(now.getTime() - ageMs);
    writeFileSync(path, content);
    utimesSync(path, time, time);
  }
  const problems = async () => (await metadata.waiting()).problems.map(({ code }) => code);

  it('lists waiting sandboxes by claim', async () => {
    expect(await metadata.waiting()).toEqual({ sandboxes: [], problems: [] });
    write('s1');
    write('s2', head);
    const { sandboxes } = await metadata.waiting();
    expect(sandboxes).toEqual([
      { claim, sandboxId: 's1', ...pod, netnsPath },
      { claim, sandboxId: 's2', ...pod },
    ]);
  });

  it('skips expired announcements, and announcements that a killed netdra-gate left unfinished', async () => {
    write('s1', text, 6_000);
    write('s2', text, -6_000);
    writeFileSync(join(claimDir, '.waiting.s4.tmp'), 'netdra-wai');
    const { sandboxes } = await metadata.waiting();
    expect(sandboxes.map(({ sandboxId }) => sandboxId)).toEqual([]);
    expect(await problems()).toEqual([]);
  });

  it('names unreadable announcements, and lists all others', async () => {
    write('damaged', 'netdra-waiting 1\n');
    write('large', 'x'.repeat(5_000));
    symlinkSync('/etc/passwd', join(claimDir, 'waiting.link.1'));
    mkdirSync(join(claimDir, 'waiting.directory.1'));
    write('s1');
    expect((await metadata.waiting()).sandboxes.map(({ sandboxId }) => sandboxId)).toEqual(['s1']);
    expect((await problems()).sort()).toEqual(['metadata-io', 'metadata-io', 'metadata-io', 'metadata-malformed']);
  });

  it('names the claim whose record is unreadable', async () => {
    write('s1');
    writeFileSync(join(claimDir, 'claim.json'), '{');
    expect((await metadata.waiting()).sandboxes).toEqual([]);
    expect(await problems()).toEqual(['metadata-malformed']);
  });

  it("ignores files beside the claims' directories", async () => {
    writeFileSync(join(bench.dataDir, 'dra-device-metadata/stray'), '');
    write('s1');
    expect((await metadata.waiting()).sandboxes).toHaveLength(1);
  });

  it('is empty once the claim is unprepared, or a claim of its name is prepared with another UID', async () => {
    write('s1');
    await metadata.prepare({ ...record, claim: { ...claim, uid: 'next' } }, new Map());
    expect((await metadata.waiting()).sandboxes).toEqual([]);
    write('s1');
    await metadata.unprepare({ ...claim, uid: 'next' });
    expect(bench.files()).toEqual([]);
  });
});
