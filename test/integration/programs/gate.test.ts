import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { ClaimMetadata, layouts } from '../../../src/framework/metadata/index.ts';
import { tempDir } from '../../doubles/temp-dir.ts';
import { buildTimeoutMs, checkedTool } from './checked-tool.ts';

// Programs with sanitizers are slow on a machine with other work.
vi.setConfig({ testTimeout: 60_000 });

const driver = 'sriov.netdra.dev';
const claim = { namespace: 'default', name: 'fast-net', uid: 'claim-uid' };
const sandbox = 'a'.repeat(64);
const other = 'b'.repeat(64);
const containerd = { 'io.kubernetes.cri.sandbox-id': sandbox };

let program: string;
let dir: ReturnType<typeof tempDir>;
let metadata: ClaimMetadata;
let claimDir: string;
beforeAll(() => {
  program = checkedTool().gate;
}, buildTimeoutMs);
beforeEach(async () => {
  dir = tempDir();
  claimDir = join(dir.path, 'data/dra-device-metadata/default_fast-net');
  metadata = new ClaimMetadata({
    driver,
    dataDir: join(dir.path, 'data'),
    cdiDir: join(dir.path, 'cdi'),
    layouts: [layouts.v1],
    gate: { program, timeoutSeconds: 100 },
  });
  await prepare();
});
afterEach(() => dir[Symbol.dispose]());

const prepare = (uid = claim.uid) =>
  metadata.prepare({ claim: { ...claim, uid }, requests: { vf: { name: 'vf', devices: [] } } }, new Map());
/** As the driver does it. */
async function serve(id = sandbox) {
  await metadata.update(claim, 'vf', []);
  await metadata.openGate(claim, id);
}

/** What a runtime writes, shortened. */
const stateOf = (annotations: unknown = containerd, more: object = {}) =>
  JSON.stringify({ ociVersion: '1.0.2', id: 'c', status: 'creating', annotations, ...more });

interface Outcome {
  code: number | null;
  signal: NodeJS.Signals | null;
  stderr: string;
  ms: number;
}

class Run {
  readonly child: ChildProcess;
  readonly outcome: Promise<Outcome>;
  isOver = false;

  constructor(input: string | Buffer, timeout: string, args = ['--claim-dir', claimDir, '--timeout', timeout]) {
    const start = performance.now();
    const child = spawn(program, args, { env: {}, stdio: ['pipe', 'ignore', 'pipe'] });
    child.stdin.on('error', () => undefined);
    child.stdin.end(input);
    this.child = child;
    this.outcome = Promise.all([once(child, 'close'), text(child.stderr)]).then(([[code, signal], stderr]) => {
      this.isOver = true;
      return { code, signal, stderr, ms: performance.now() - start };
    });
  }
}

const run = (input: string | Buffer = stateOf(), timeout = '0.3') => new Run(input, timeout).outcome;
/** One that goes on waiting until something happens. */
async function waiting(input = stateOf(), timeout = '50') {
  const waiter = new Run(input, timeout);
  await sleep(250);
  expect(waiter.isOver).toBe(false);
  return waiter;
}
const tail = (id = sandbox) =>
  ` (sandbox ${id}, claim directory ${claimDir}): see the logs of the netdra pod on this node\n`;
const message = (what: string, id?: string) => `netdra-gate: ${what}${tail(id)}`;
const late = 'the devices of the claim were not ready in time';

describe('a container whose sandbox is served', () => {
  it.each([
    ['containerd', containerd],
    ['CRI-O', { 'io.kubernetes.cri-o.SandboxID': sandbox }],
    ['both in one', { ...containerd, 'io.kubernetes.cri-o.SandboxID': sandbox, other: 'x' }],
  ])('starts at once: %s', async (_runtime, annotations) => {
    await serve();
    const { code, stderr, ms } = await run(stateOf(annotations), '50');
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(ms).toBeLessThan(5000);
  });

  it('starts whatever its first process does, and without its id', async () => {
    await serve();
    expect(await run(stateOf(containerd, { pid: undefined }))).toMatchObject({ code: 0, stderr: '' });
  });

  it('starts with all the annotations that a pod can have, which CRI-O copies, and in Go six bytes for each byte', async () => {
    await serve();
    const state = stateOf({ ...containerd, a: '@' }).replace('@', '\\u003c'.repeat(2 ** 18));
    expect(await run(state)).toMatchObject({ code: 0, stderr: '' });
  });
});

describe('a container that comes too early', () => {
  it('waits, and starts as soon as its sandbox is served', async () => {
    const waiter = await waiting();
    await metadata.holdGate(claim, sandbox, 'the VF is in another pod');
    await sleep(300);
    expect(waiter.isOver).toBe(false);
    const before = performance.now();
    await serve();
    expect(await waiter.outcome).toMatchObject({ code: 0, stderr: '' });
    expect(performance.now() - before).toBeLessThan(2000);
  });

  it.each([
    ['another sandbox is served', () => serve(other)],
    ['another sandbox has ended', () => metadata.endGate(claim, other)],
    ['the gate is empty', async () => writeFileSync(join(claimDir, 'gate'), '')],
  ])('waits while %s', async (_what, prepareGate) => {
    await prepareGate();
    const waiter = await waiting();
    await metadata.withdraw(claim);
    await serve();
    expect(await waiter.outcome).toMatchObject({ code: 0 });
  });

  it('reads what is written without a rename, too', async () => {
    const waiter = await waiting();
    writeFileSync(join(claimDir, 'gate'), `netdra-gate 1\nserved ${sandbox}\n`);
    expect(await waiter.outcome).toMatchObject({ code: 0 });
  });

  it.each<[string, () => Promise<void>, string]>([
    [
      'the driver said why',
      () => metadata.holdGate(claim, sandbox, 'the VF is in pod default/old'),
      `${late}: the VF is in pod default/old`,
    ],
    ['the driver gave no reason', () => metadata.holdGate(claim, sandbox, ''), `${late}: the driver gives no reason`],
    ['another sandbox is served', () => serve(other), `${late}: they are in sandbox ${other}`],
    [
      'nothing was said',
      async () => undefined,
      `${late}: the driver has said nothing about this sandbox, it may not be running`,
    ],
    [
      'another sandbox waits',
      () => metadata.holdGate(claim, other, 'not yours'),
      `${late}: the driver has said nothing about this sandbox, it may not be running`,
    ],
  ])('fails when its time is over: %s', async (_what, prepareGate, reason) => {
    await prepareGate();
    const { code, stderr, ms } = await run();
    expect({ code, stderr }).toEqual({ code: 4, stderr: message(reason) });
    expect(ms).toBeGreaterThanOrEqual(300);
  });

  it('has one deadline for all its hooks: so many seconds after its first process has started', async () => {
    const init = spawn('sleep', ['1000'], { stdio: 'ignore' });
    await sleep(1_500);
    const { code, ms } = await run(stateOf(containerd, { pid: init.pid }), '2');
    expect(code).toBe(4);
    expect(ms).toBeLessThan(1_500);
    // Its time is over, and an open gate lets it pass all the same.
    await serve();
    expect(await run(stateOf(containerd, { pid: init.pid }), '2')).toMatchObject({ code: 0 });
    init.kill('SIGKILL');
  });

  it('remembers what the driver said last of its sandbox', async () => {
    await metadata.holdGate(claim, sandbox, 'CNI is slow');
    const waiter = new Run(stateOf(), '1.5');
    await sleep(700);
    await metadata.withdraw(claim);
    expect(await waiter.outcome).toMatchObject({ code: 4, stderr: message(`${late}: CNI is slow`) });
  });
});

describe('a container for which nothing will come', () => {
  it('fails at once when its sandbox has ended', async () => {
    await metadata.endGate(claim, sandbox);
    const { code, stderr, ms } = await run(stateOf(), '50');
    expect({ code, stderr }).toEqual({ code: 1, stderr: message('the sandbox of the container is being stopped') });
    expect(ms).toBeLessThan(5000);
  });

  it('fails when its sandbox ends while it waits', async () => {
    const waiter = await waiting();
    await metadata.endGate(claim, sandbox);
    expect(await waiter.outcome).toMatchObject({ code: 1, stderr: expect.stringContaining('is being stopped') });
  });

  it.each([
    ['is unprepared', () => metadata.unprepare(claim)],
    // The same path, another directory.
    ['is prepared for another claim of that name', () => prepare('next-uid')],
    ['is moved away', async () => renameSync(claimDir, `${claimDir}-x`)],
  ])('fails when its claim %s while it waits', async (_what, end) => {
    const waiter = await waiting();
    await end();
    const stderr = message('the claim is not prepared on this node any more');
    expect(await waiter.outcome).toMatchObject({ code: 1, stderr });
  });

  it('fails at once when its claim is not prepared', async () => {
    await metadata.unprepare(claim);
    const stderr = message('the claim is not prepared on this node any more');
    expect(await run(stateOf(), '50')).toMatchObject({ code: 1, stderr });
    mkdirSync(join(dir.path, 'data/dra-device-metadata'), { recursive: true });
    writeFileSync(claimDir, '');
    expect(await run(stateOf(), '50')).toMatchObject({ code: 1, stderr });
  });

  it('ends when the first process of the container does', async () => {
    const init = spawn('sleep', ['1000'], { stdio: 'ignore' });
    const waiter = await waiting(stateOf(containerd, { pid: init.pid }));
    init.kill('SIGKILL');
    expect(await waiter.outcome).toMatchObject({ code: 1, stderr: message('the container has ended') });
  });

  it('ends when that process is dead but its parent has not reaped it', async () => {
    // A shell that becomes a program which does not wait for its children.
    const script = 'sleep 1000 & echo $!; exec sleep 1000';
    const parent = spawn('sh', ['-c', script], { stdio: ['ignore', 'pipe', 'ignore'] });
    const [line] = (await once(parent.stdout, 'data')) as [Buffer];
    const pid = Number(line.toString());
    await vi.waitFor(() => expect(readFileSync(`/proc/${parent.pid}/comm`, 'utf8')).toBe('sleep\n'));
    process.kill(pid, 'SIGKILL');
    await vi.waitFor(() => expect(readFileSync(`/proc/${pid}/stat`, 'utf8')).toContain(') Z '));
    const stderr = message('the container has ended');
    expect(await run(stateOf(containerd, { pid }), '50')).toMatchObject({ code: 1, stderr });
    parent.kill('SIGKILL');
    await once(parent, 'close');
  });

  it('ends when the runtime that called it does', async () => {
    const state = join(dir.path, 'state');
    writeFileSync(state, stateOf());
    const script = '"$0" --claim-dir "$1" --timeout 50 < "$2" & exec sleep 1000';
    const runtime = spawn('sh', ['-c', script, program, claimDir, state], { stdio: ['ignore', 'ignore', 'pipe'] });
    const stderr = text(runtime.stderr);
    await sleep(500);
    runtime.kill('SIGKILL');
    expect(await stderr).toBe(message('the container runtime has given the container up'));
  });

  it('ends by SIGTERM at once', async () => {
    const waiter = await waiting();
    const before = performance.now();
    waiter.child.kill('SIGTERM');
    expect(await waiter.outcome).toMatchObject({ signal: 'SIGTERM', stderr: '' });
    expect(performance.now() - before).toBeLessThan(2000);
  });
});

describe('a container that waits announces its sandbox', () => {
  const pod = { podUid: 'pod-uid-1', podNamespace: 'apps', podName: 'web.0' };
  const ofContainerd = {
    ...containerd,
    'io.kubernetes.cri.sandbox-uid': pod.podUid,
    'io.kubernetes.cri.sandbox-namespace': pod.podNamespace,
    'io.kubernetes.cri.sandbox-name': pod.podName,
  };
  const ofCrio = {
    'io.kubernetes.cri-o.SandboxID': sandbox,
    'io.kubernetes.pod.uid': pod.podUid,
    'io.kubernetes.pod.namespace': pod.podNamespace,
    'io.kubernetes.pod.name': pod.podName,
  };
  const announced = () => readdirSync(claimDir).filter((name) => name.includes('waiting'));
  const nameOf = ({ child }: Run) => `waiting.${sandbox}.${child.pid}`;
  const expected = { claim, sandboxId: sandbox, ...pod };

  it.each([
    ['containerd', ofContainerd],
    ['CRI-O', ofCrio],
  ])('which the driver reads, until it is served: %s', async (_runtime, annotations) => {
    const waiter = await waiting(stateOf(annotations));
    expect(announced()).toEqual([nameOf(waiter)]);
    expect(statSync(join(claimDir, nameOf(waiter))).mode & 0o777).toBe(0o600);
    expect(await metadata.waiting()).toEqual({ sandboxes: [expected], problems: [] });
    await serve();
    expect(await waiter.outcome).toMatchObject({ code: 0, stderr: '' });
    expect(announced()).toEqual([]);
  });

  it('with the name of its network namespace', async () => {
    const name = `netdra-gate-${process.pid}`;
    const ip = (...args: string[]) => spawnSync('ip', ['netns', ...args], { encoding: 'utf8' });
    expect(ip('add', name)).toMatchObject({ status: 0 });
    try {
      const init = spawn('ip', ['netns', 'exec', name, 'sleep', '1000'], { stdio: 'ignore' });
      const ended = once(init, 'close');
      await vi.waitFor(() => expect(readFileSync(`/proc/${init.pid}/comm`, 'utf8')).toBe('sleep\n'));
      const waiter = await waiting(stateOf(ofContainerd, { pid: init.pid }));
      const { sandboxes } = await metadata.waiting();
      expect(sandboxes).toEqual([{ ...expected, netnsPath: `/var/run/netns/${name}` }]);
      init.kill();
      await ended;
      await waiter.outcome;
      expect(announced()).toEqual([]);
    } finally {
      ip('delete', name);
    }
  });

  it('for as long as it waits', async () => {
    const waiter = await waiting(stateOf(ofContainerd));
    const longAgo = new Date('2026-01-01');
    utimesSync(join(claimDir, nameOf(waiter)), longAgo, longAgo);
    expect((await metadata.waiting()).sandboxes).toEqual([]);
    await vi.waitFor(async () => expect((await metadata.waiting()).sandboxes).toEqual([expected]), 20_000);
    await metadata.endGate(claim, sandbox);
    expect(await waiter.outcome).toMatchObject({ code: 1 });
    expect(announced()).toEqual([]);
  });

  it.each(['SIGTERM', 'SIGINT', 'SIGHUP'] as const)('until it is ended by %s', async (signal) => {
    const waiter = await waiting(stateOf(ofContainerd));
    expect(announced()).toHaveLength(1);
    waiter.child.kill(signal);
    expect(await waiter.outcome).toMatchObject({ signal, stderr: '' });
    expect(announced()).toEqual([]);
  });

  it('and when its time is over', async () => {
    expect(await run(stateOf(ofContainerd))).toMatchObject({ code: 4 });
    expect(announced()).toEqual([]);
  });

  it('also when another one of the sandbox has ended', async () => {
    const [first, second] = [await waiting(stateOf(ofContainerd)), await waiting(stateOf(ofContainerd))];
    first.child.kill('SIGTERM');
    await first.outcome;
    expect(announced()).toEqual([nameOf(second)]);
    expect((await metadata.waiting()).sandboxes).toEqual([expected]);
    await serve();
    await second.outcome;
    expect(announced()).toEqual([]);
  });

  it('over what one that was killed has left', async () => {
    const script =
      'for name in "waiting.$1.$$" ".waiting.$1.$$.tmp"; do ln -s /nowhere "$2/$name"; done; exec "$0" --claim-dir "$2" --timeout 50';
    const child = spawn('sh', ['-c', script, program, sandbox, claimDir], { stdio: ['pipe', 'ignore', 'inherit'] });
    child.stdin.end(stateOf(ofContainerd));
    await vi.waitFor(async () => expect((await metadata.waiting()).sandboxes).toEqual([expected]), 20_000);
    await serve();
    await once(child, 'close');
    expect(announced()).toEqual([]);
  });

  it.each<[string, object]>([
    ['the runtime does not say which pod it is', containerd],
    ['it says only a part of that', { ...ofContainerd, 'io.kubernetes.cri.sandbox-uid': undefined }],
    ['the pod has brought annotations of another runtime', { ...ofContainerd, ...ofCrio }],
    ['the UID would be two lines', { ...ofContainerd, 'io.kubernetes.cri.sandbox-uid': 'a\nnetns /run/netns/b' }],
    ['the name is too long', { ...ofContainerd, 'io.kubernetes.cri.sandbox-name': 'a'.repeat(254) }],
    ['the name is empty', { ...ofContainerd, 'io.kubernetes.cri.sandbox-name': '' }],
    ['the sandbox would be another directory', { ...ofContainerd, 'io.kubernetes.cri.sandbox-id': '../a' }],
  ])('unless %s: it waits all the same', async (_why, annotations) => {
    const waiter = await waiting(stateOf(annotations));
    expect(announced()).toEqual([]);
    await metadata.unprepare(claim);
    expect(await waiter.outcome).toMatchObject({ code: 1 });
  });

  it('unless it cannot: it waits all the same, and says nothing of that', async () => {
    const script = 'mkdir "$2/.waiting.$1.$$.tmp"; exec "$0" --claim-dir "$2" --timeout 50';
    const child = spawn('sh', ['-c', script, program, sandbox, claimDir], { stdio: ['pipe', 'ignore', 'pipe'] });
    const stderr = text(child.stderr);
    child.stdin.end(stateOf(ofContainerd));
    await sleep(400);
    await serve();
    expect([...(await once(child, 'close')), await stderr]).toEqual([0, null, '']);
  });

  it('and does not when it need not wait', async () => {
    await serve();
    utimesSync(claimDir, new Date(0), new Date(0));
    expect(await run(stateOf(ofContainerd))).toMatchObject({ code: 0 });
    expect(statSync(claimDir).mtimeMs).toBe(0);
  });
});

describe('what cannot be understood fails at once', () => {
  it.each<[string, string | Buffer, string]>([
    ['nothing', '', 'the runtime says nothing of the container on standard input'],
    ['no JSON', 'pid=1', "the state of the container is malformed: no JSON: a value expected, but 'p' at offset 0"],
    ['a list', '[]', 'the state of the container is malformed: it is a list'],
    ['a cut state', stateOf().slice(0, -4), 'the state of the container is malformed: no JSON'],
    ['a large state', `{"x":"${'x'.repeat(2 ** 21)}"}`, 'the state of the container is larger than 2097152 bytes'],
    ['a deep state', '['.repeat(100_000), 'the state of the container is malformed: no JSON'],
    ['no annotations', stateOf(null), 'the container has neither annotation io.kubernetes.cri.sandbox-id nor'],
    ['no sandbox', stateOf({ a: 'b' }), 'its runtime is not supported'],
    [
      'a number',
      stateOf({ 'io.kubernetes.cri.sandbox-id': 7 }),
      'annotation io.kubernetes.cri.sandbox-id of the container is no sandbox id',
    ],
    ['an empty id', stateOf({ 'io.kubernetes.cri.sandbox-id': '' }), 'is no sandbox id'],
    ['an id with a line feed', stateOf({ 'io.kubernetes.cri.sandbox-id': 'a\nserved' }), 'is no sandbox id'],
    [
      'a long id',
      stateOf({ 'io.kubernetes.cri-o.SandboxID': 'a'.repeat(129) }),
      'annotation io.kubernetes.cri-o.SandboxID of the container is no sandbox id',
    ],
    ['two ids', stateOf({ ...containerd, 'io.kubernetes.cri-o.SandboxID': other }), 'of the container differ'],
    ['a pid that is text', stateOf(containerd, { pid: '1' }), 'pid is no process id'],
    ['a pid that is too large', stateOf(containerd, { pid: 2 ** 40 }), 'pid is no process id'],
    ['bytes', Buffer.from([0xff, 0xfe, 0x00, 0x1b]), 'byte 0xff at offset 0'],
  ])('%s on standard input', async (_what, input, reason) => {
    await serve();
    const { code, stderr } = await run(input, '50');
    expect(code).toBe(3);
    expect(stderr).toContain(reason);
    expect(stderr).toMatch(/^netdra-gate: [ -~]+\n$/);
  });

  it('a state that does not end', async () => {
    const child = spawn(program, ['--claim-dir', claimDir, '--timeout', '0.5'], { stdio: ['pipe', 'ignore', 'pipe'] });
    const stderr = text(child.stderr);
    child.stdin.write(stateOf());
    expect(await once(child, 'close')).toEqual([5, null]);
    expect(await stderr).toBe(message('the runtime does not end what it says of the container', 'unknown'));
  });
});

describe('a gate that cannot be understood', () => {
  const refused = 'the file gate cannot be understood: ';
  it.each<[string, string | Buffer, string]>([
    ['of another version', `netdra-gate 2\nserved ${sandbox}\n`, 'it is of another version of the driver, or damaged'],
    ['of zeros', Buffer.alloc(200), 'it is of another version of the driver, or damaged'],
    ['without a second line', 'netdra-gate 1\n', 'its second line is cut off'],
    ['cut off', `netdra-gate 1\nserved ${sandbox}`, 'its second line is cut off'],
    ['in an unknown state', `netdra-gate 1\nserve ${sandbox}\n`, 'its state is unknown'],
    ['without a sandbox', 'netdra-gate 1\nserved\n', 'it names no sandbox'],
    ['with an empty sandbox', 'netdra-gate 1\nserved  x\n', 'it names no sandbox'],
    ['with a long sandbox', `netdra-gate 1\nserved ${'a'.repeat(129)}\n`, 'it names no sandbox'],
    ['too long', `netdra-gate 1\nwaiting a ${'x'.repeat(5000)}\n`, 'it is too long'],
  ])('%s: the container waits, and says so when its time is over', async (_what, gate, reason) => {
    writeFileSync(join(claimDir, 'gate'), gate);
    expect(await run()).toMatchObject({ code: 4, stderr: message(`${late}: ${refused}${reason}`) });
  });

  it('a newer version that an older one replaces: the container starts', async () => {
    writeFileSync(join(claimDir, 'gate'), `netdra-gate 2\nwaiting ${sandbox}\n`);
    const waiter = await waiting();
    await metadata.withdraw(claim);
    await serve();
    expect(await waiter.outcome).toMatchObject({ code: 0, stderr: '' });
  });

  it('no file: a directory, a link, a pipe', async () => {
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

describe('text that another process wrote into the gate', () => {
  it('reaches no terminal', async () => {
    const gate = Buffer.from(`netdra-gate 1\nwaiting ${sandbox} \x1b[31mred\u202e ä\x07${'x'.repeat(2000)}\n`);
    writeFileSync(join(claimDir, 'gate'), gate);
    const { stderr } = await run();
    expect(stderr).toMatch(/^netdra-gate: [ -~]+\n$/);
    expect(stderr).toContain(`${late}: \\x1b[31mred\\xe2\\x80\\xae \\xc3\\xa4\\x07xxx`);
    expect(stderr.length).toBeLessThan(1200);
  });
});

describe('the command line', () => {
  it.each([
    [[]],
    [['--claim-dir']],
    [['--claim-dir', 'relative']],
    [['--timeout', '5']],
    [['--claim-dir', '/x', '--timeout', 'soon']],
    [['--claim-dir', '/x', '--timeout', '-1']],
    [['--claim-dir', '/x', 'more']],
  ])('refuses %j', async (args) => {
    const { code, stderr } = await new Run('', '', args).outcome;
    expect({ code, stderr }).toEqual({
      code: 2,
      stderr: 'netdra-gate: wrong arguments: netdra-gate --claim-dir DIR [--timeout SECONDS] expected\n',
    });
  });

  it('says what the file system refuses', async () => {
    const long = ['--claim-dir', `/${'x'.repeat(300)}`, '--timeout', '5'];
    expect(await new Run(stateOf(), '', long).outcome).toMatchObject({
      code: 5,
      stderr: expect.stringContaining("the claim's directory cannot be opened: File name too long"),
    });
  });
});
