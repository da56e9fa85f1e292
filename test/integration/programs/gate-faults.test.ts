import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, mkdirSync, openSync, writeFileSync } from 'node:fs';
import { constants } from 'node:os';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import fc from 'fast-check';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { formatGate, type Gate, parseGate } from '../../../src/framework/metadata/gate/gate.ts';
import { tempDir } from '../../doubles/temp-dir.ts';
import { buildTimeoutMs, checkedTool } from './checked-tool.ts';

// Programs with sanitizers are slow on a machine with other work.
vi.setConfig({ testTimeout: 180_000 });

const sandbox = 'a'.repeat(64);
const other = 'b'.repeat(64);
/** What a runtime writes, shortened. */
const state = JSON.stringify({
  ociVersion: '1.0.2',
  id: 'c',
  annotations: { 'io.kubernetes.cri.sandbox-id': sandbox },
});
const exit = { ok: 0, ended: 1, late: 4, system: 5 };

let program: string;
beforeAll(() => {
  program = checkedTool().failingGate;
}, buildTimeoutMs);

/** Runs the gate program on a claim directory with this gate. @param fault see `programs/fuzz/faults.c` */
async function run(
  gate: string | Buffer | undefined,
  timeout: string,
  fault = '',
): Promise<{ code: number; stderr: string }> {
  using dir = tempDir();
  const claimDir = join(dir.path, 'claim');
  mkdirSync(claimDir);
  if (gate !== undefined) writeFileSync(join(claimDir, 'gate'), gate);
  const args = ['--claim-dir', claimDir, '--timeout', timeout];
  writeFileSync(join(dir.path, 'state'), state);
  const input = openSync(join(dir.path, 'state'), 'r');
  const child = spawn(program, args, { env: { NETDRA_FAULT: fault }, stdio: [input, 'ignore', 'pipe'] });
  closeSync(input);
  const [[code, signal], stderr] = await Promise.all([once(child, 'close'), text(child.stderr as Readable)]);
  expect(signal, stderr).toBe(null);
  // A busy machine: it had no time to read its input.
  if (code === exit.system && stderr.includes('does not end what it says')) return await run(gate, '5', fault);
  // One line, which no terminal interprets.
  expect(stderr).toMatch(code === exit.ok ? /^$/ : /^netdra-gate: [ -~]+\n$/);
  return { code: code as number, stderr };
}

/** Checks so many values, several at once: most of them wait for a time-out. */
async function check<T>(count: number, values: fc.Arbitrary<T>, task: (value: T) => Promise<void>): Promise<void> {
  const several = fc.array(values, { minLength: 6, maxLength: 6 });
  await fc.assert(
    fc.asyncProperty(several, async (each) => void (await Promise.all(each.map(task)))),
    { numRuns: Math.ceil(count / 6) },
  );
}

const gates: fc.Arbitrary<Gate> = fc.record(
  {
    state: fc.constantFrom('served', 'waiting', 'ended'),
    sandboxId: fc.oneof(fc.constantFrom(sandbox, sandbox, other), fc.stringMatching(/^[!-~]{1,128}$/)),
    reason: fc.oneof(fc.string({ unit: 'binary', maxLength: 600 }), fc.constant('CNI is slow')),
  },
  { requiredKeys: ['state', 'sandboxId'] },
);

/** What becomes of bytes that a disk, an editor or another version of the driver has changed. */
type Damage = { cut: number } | { at: number; bytes: Uint8Array } | { at: number; insert: Uint8Array };
const damages: fc.Arbitrary<Damage> = fc.oneof(
  fc.record({ cut: fc.nat(700) }),
  fc.record({ at: fc.nat(700), bytes: fc.uint8Array({ minLength: 1, maxLength: 4 }) }),
  fc.record({ insert: fc.uint8Array({ maxLength: 5_000 }), at: fc.nat(700) }),
);

function damage(gate: Gate, how: Damage): Buffer {
  const bytes = Buffer.from(formatGate(gate));
  if ('cut' in how) return bytes.subarray(0, how.cut);
  const at = how.at % bytes.length;
  const [middle, after] = 'bytes' in how ? [how.bytes, at + how.bytes.length] : [how.insert, at];
  return Buffer.concat([bytes.subarray(0, at), middle, bytes.subarray(after)]);
}

describe('netdra-gate and the driver', () => {
  it('interpret any content of the gate file in the same way', async () => {
    await check(60, gates, async (gate) => {
      const { code, stderr } = await run(formatGate(gate), '0.1');
      const isOurs = gate.sandboxId === sandbox;
      const expected = { served: exit.ok, waiting: exit.late, ended: exit.ended }[gate.state];
      expect({ code, stderr }).toMatchObject({ code: isOurs ? expected : exit.late });
      // The program has room for less of it, and escapes what is not ASCII.
      const shown = /^[ -~]{0,500}/.exec(parseGate(formatGate(gate))?.reason ?? '')?.[0] ?? '';
      if (isOurs && gate.state === 'waiting') expect(stderr).toContain(shown.replaceAll('\\', '\\\\'));
    });
  });

  it('never start a container because of a damaged gate file', async () => {
    await check(120, fc.tuple(gates, damages), async ([gate, how]) => {
      const bytes = damage(gate, how);
      const { code, stderr } = await run(bytes, '0.1');
      const read = parseGate(bytes.toString());
      const isOurs = read?.sandboxId === sandbox;
      if (code === exit.ok) expect(isOurs && read.state).toBe('served');
      else if (code === exit.ended) expect(isOurs && read.state).toBe('ended');
      else expect({ code, stderr }).toMatchObject({ code: exit.late });
    });
  });
});

/** Calls after which the program goes on, by another way or a moment later. */
const repeatable = [
  'open',
  'openat',
  'fstat',
  'stat',
  'poll',
  'inotify_init1',
  'inotify_add_watch',
  'write',
  'renameat',
];
const temporary = ['EMFILE', 'ENFILE', 'ENOMEM', 'EIO', 'EINTR', 'EAGAIN'] as const;
const lasting = ['EACCES', 'EPERM', 'ELOOP', 'ENOSPC', 'ESTALE', 'ENOENT'] as const;

describe('netdra-gate, when system calls fail', () => {
  it.each(repeatable)('starts a container whose devices are ready although %s fails temporarily', async (call) => {
    const faults = fc.tuple(fc.constantFrom(...temporary), fc.integer({ min: 1, max: 3 }));
    await check(8, faults, async ([name, first]) => {
      const fault = `${call}:${constants.errno[name]}:${first}-${first + 3}`;
      const outcome = await run(formatGate({ state: 'served', sandboxId: sandbox }), '20', fault);
      expect(outcome, fault).toEqual({ code: exit.ok, stderr: '' });
    });
  });

  it('never starts a container whose devices are not ready, and prints a reason', async () => {
    const isShut = ({ state, sandboxId }: Gate) => state !== 'served' || sandboxId !== sandbox;
    const cases = fc.tuple(
      fc.option(gates.filter(isShut), { nil: undefined }),
      fc.constantFrom('read', ...repeatable),
      fc.constantFrom(...temporary, ...lasting),
      fc.integer({ min: 1, max: 6 }),
      fc.constantFrom(0, 1, 1_000),
    );
    await check(60, cases, async ([gate, call, name, first, more]) => {
      const fault = `${call}:${constants.errno[name]}:${first}-${first + more}`;
      const { code, stderr } = await run(gate && formatGate(gate), '0.15', fault);
      expect(code, `${fault}: ${stderr}`).not.toBe(exit.ok);
    });
  });
});
