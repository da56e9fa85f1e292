import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, expect, it } from 'vitest';
import {
  claim,
  claimDir,
  containerd,
  dir,
  late,
  message,
  metadata,
  other,
  program,
  Run,
  run,
  sandbox,
  serve,
  stateOf,
  useGateProgram,
  waiting,
} from './gate-program.ts';

useGateProgram();

describe('netdra-gate fails at once on invalid input', () => {
  it.each<[string, string | Buffer, string]>([
    ['nothing', '', 'the runtime says nothing of the container on standard input'],
    [
      'invalid JSON',
      'pid=1',
      "the state of the container is malformed: no JSON: a value expected, but 'p' at offset 0",
    ],
    ['a list', '[]', 'the state of the container is malformed: it is a list'],
    ['a truncated container state', stateOf().slice(0, -4), 'the state of the container is malformed: no JSON'],
    [
      'an oversize container state',
      `{"x":"${'x'.repeat(2 ** 21)}"}`,
      'the state of the container is larger than 2097152 bytes',
    ],
    ['a deeply nested container state', '['.repeat(100_000), 'the state of the container is malformed: no JSON'],
    [
      'a container state without annotations',
      stateOf(null),
      'the container has neither annotation io.kubernetes.cri.sandbox-id nor',
    ],
    ['a container state without a sandbox', stateOf({ a: 'b' }), 'its runtime is not supported'],
    [
      'a container state with a number as sandbox ID',
      stateOf({ 'io.kubernetes.cri.sandbox-id': 7 }),
      'annotation io.kubernetes.cri.sandbox-id of the container is no sandbox id',
    ],
    ['an empty sandbox ID', stateOf({ 'io.kubernetes.cri.sandbox-id': '' }), 'is no sandbox id'],
    ['a sandbox ID with a line feed', stateOf({ 'io.kubernetes.cri.sandbox-id': 'a\nserved' }), 'is no sandbox id'],
    [
      'a sandbox ID that is too long',
      stateOf({ 'io.kubernetes.cri-o.SandboxID': 'a'.repeat(129) }),
      'annotation io.kubernetes.cri-o.SandboxID of the container is no sandbox id',
    ],
    [
      'a container state with two different sandbox IDs',
      stateOf({ ...containerd, 'io.kubernetes.cri-o.SandboxID': other }),
      'of the container differ',
    ],
    ['a PID given as text', stateOf(containerd, { pid: '1' }), 'pid is no process id'],
    ['a PID that is too large', stateOf(containerd, { pid: 2 ** 40 }), 'pid is no process id'],
    ['bytes that are not text', Buffer.from([0xff, 0xfe, 0x00, 0x1b]), 'byte 0xff at offset 0'],
  ])('%s on standard input', async (_what, input, reason) => {
    await serve();
    const { code, stderr } = await run(input, '50');
    expect(code).toBe(3);
    expect(stderr).toContain(reason);
    expect(stderr).toMatch(/^netdra-gate: [ -~]+\n$/);
  });

  it('a container state that never ends on standard input', async () => {
    const child = spawn(program, ['--claim-dir', claimDir, '--timeout', '0.5'], { stdio: ['pipe', 'ignore', 'pipe'] });
    const stderr = text(child.stderr);
    child.stdin.write(stateOf());
    expect(await once(child, 'close')).toEqual([5, null]);
    expect(await stderr).toBe(message('the runtime does not end what it says of the container', 'unknown'));
  });
});

describe('netdra-gate with an unreadable gate', () => {
  const refused = 'the file gate cannot be understood: ';
  it.each<[string, string | Buffer, string]>([
    ['of another version', `netdra-gate 2\nserved ${sandbox}\n`, 'it is of another version of the driver, or damaged'],
    ['filled with zeros', Buffer.alloc(200), 'it is of another version of the driver, or damaged'],
    ['without a second line', 'netdra-gate 1\n', 'its second line is cut off'],
    ['truncated', `netdra-gate 1\nserved ${sandbox}`, 'its second line is cut off'],
    ['in an unknown state', `netdra-gate 1\nserve ${sandbox}\n`, 'its state is unknown'],
    ['without a sandbox', 'netdra-gate 1\nserved\n', 'it names no sandbox'],
    ['with an empty sandbox', 'netdra-gate 1\nserved  x\n', 'it names no sandbox'],
    ['with a long sandbox', `netdra-gate 1\nserved ${'a'.repeat(129)}\n`, 'it names no sandbox'],
    ['too long', `netdra-gate 1\nwaiting a ${'x'.repeat(5000)}\n`, 'it is too long'],
  ])('%s: waits, and names the problem at its timeout', async (_what, gate, reason) => {
    writeFileSync(join(claimDir, 'gate'), gate);
    expect(await run()).toMatchObject({ code: 4, stderr: message(`${late}: ${refused}${reason}`) });
  });

  it('starts the container when an older driver overwrites a gate of a newer version', async () => {
    writeFileSync(join(claimDir, 'gate'), `netdra-gate 2\nwaiting ${sandbox}\n`);
    const waiter = await waiting();
    await metadata.withdraw(claim);
    await serve();
    expect(await waiter.outcome).toMatchObject({ code: 0, stderr: '' });
  });

  it('rejects a directory, a link and a pipe as a gate', async () => {
    const gate = join(claimDir, 'gate');
    const irregular = { code: 4, stderr: message(`${late}: ${refused}it is not a regular file`) };
    mkdirSync(gate);
    expect(await run()).toMatchObject(irregular);
    rmSync(gate, { recursive: true });
    writeFileSync(join(dir.path, 'elsewhere'), `netdra-gate 1\nserved ${sandbox}\n`);
    symlinkSync(join(dir.path, 'elsewhere'), gate);
    expect(await run()).toMatchObject({ code: 4, stderr: expect.stringContaining('cannot be opened') });
    rmSync(gate);
    await once(spawn('mkfifo', [gate]), 'close');
    expect(await run()).toMatchObject(irregular);
  });
});

it('netdra-gate escapes control characters of the gate file in its messages', async () => {
  const gate = Buffer.from(`netdra-gate 1\nwaiting ${sandbox} \x1b[31mred\u202e ä\x07${'x'.repeat(2000)}\n`);
  writeFileSync(join(claimDir, 'gate'), gate);
  const { stderr } = await run();
  expect(stderr).toMatch(/^netdra-gate: [ -~]+\n$/);
  expect(stderr).toContain(`${late}: \\x1b[31mred\\xe2\\x80\\xae \\xc3\\xa4\\x07xxx`);
  expect(stderr.length).toBeLessThan(1200);
});

describe('the command line of netdra-gate', () => {
  it.each([
    [[]],
    [['--claim-dir']],
    [['--claim-dir', 'relative']],
    [['--timeout', '5']],
    [['--claim-dir', '/x', '--timeout', 'soon']],
    [['--claim-dir', '/x', '--timeout', '-1']],
    [['--claim-dir', '/x', 'more']],
  ])('rejects %j', async (args) => {
    const { code, stderr } = await new Run('', '', args).outcome;
    expect({ code, stderr }).toEqual({
      code: 2,
      stderr: 'netdra-gate: wrong arguments: netdra-gate --claim-dir DIR [--timeout SECONDS] expected\n',
    });
  });

  it('reports errors of the file system', async () => {
    const long = ['--claim-dir', `/${'x'.repeat(300)}`, '--timeout', '5'];
    expect(await new Run(stateOf(), '', long).outcome).toMatchObject({
      code: 5,
      stderr: expect.stringContaining("the claim's directory cannot be opened: File name too long"),
    });
  });
});
