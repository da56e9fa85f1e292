import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readdirSync, readFileSync, renameSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, expect, it, vi } from 'vitest';
import {
  claim,
  claimDir,
  containerd,
  dir,
  late,
  message,
  metadata,
  other,
  prepare,
  program,
  Run,
  run,
  sandbox,
  serve,
  stateOf,
  untilWaiting,
  useGateProgram,
  waiting,
} from './gate-program.ts';

useGateProgram();

const pod = { podUid: 'pod-uid-1', podNamespace: 'apps', podName: 'web.0' };
const ofContainerd = {
  ...containerd,
  'io.kubernetes.cri.sandbox-uid': pod.podUid,
  'io.kubernetes.cri.sandbox-namespace': pod.podNamespace,
  'io.kubernetes.cri.sandbox-name': pod.podName,
};
const announced = () => readdirSync(claimDir).filter((name) => name.startsWith('waiting.'));

/** Returns the time since a process started. Source: proc_pid_stat(5); the clock has 100 ticks a second. */
function ageSecondsOf(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
  const uptimeSeconds = Number(readFileSync('/proc/uptime', 'utf8').split(' ')[0]);
  return uptimeSeconds - Number(fields[19]) / 100;
}

describe('a container whose devices are ready', () => {
  it.each([
    ['containerd', containerd],
    ['CRI-O', { 'io.kubernetes.cri-o.SandboxID': sandbox }],
    ['both formats in one container state', { ...containerd, 'io.kubernetes.cri-o.SandboxID': sandbox, other: 'x' }],
  ])('starts at once: %s', async (_runtime, annotations) => {
    await serve();
    const { code, stderr, ms } = await run(stateOf(annotations), '50');
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(ms).toBeLessThan(25_000);
  });

  it('starts even if the runtime does not pass the PID of its first process', async () => {
    await serve();
    expect(await run(stateOf(containerd, { pid: undefined }))).toMatchObject({ code: 0, stderr: '' });
  });

  it('starts even with the largest pod annotations, all of whose bytes are escaped in JSON', async () => {
    await serve();
    const state = stateOf({ ...containerd, a: '@' }).replace('@', '\\u003c'.repeat(2 ** 18));
    expect(await run(state)).toMatchObject({ code: 0, stderr: '' });
  });
});

describe('a container that starts before its devices are ready', () => {
  it('waits, and starts as soon as its devices are ready', async () => {
    const waiter = await waiting();
    await metadata.holdGate(claim, sandbox, 'the VF is in another pod');
    expect(waiter.isOver).toBe(false);
    await serve();
    const { ms, ...outcome } = await waiter.outcome;
    expect(outcome).toMatchObject({ code: 0, stderr: '' });
    expect(ms).toBeLessThan(25_000);
  });

  it.each([
    ['the gate is open for another sandbox', () => serve(other)],
    ['another sandbox has ended', () => metadata.endGate(claim, other)],
    ['the gate is empty', async () => writeFileSync(join(claimDir, 'gate'), '')],
  ])('waits while %s', async (_what, prepareGate) => {
    await prepareGate();
    const waiter = await waiting();
    await metadata.withdraw(claim);
    await serve();
    expect(await waiter.outcome).toMatchObject({ code: 0 });
  });

  it('starts when the gate is written in place, without a rename', async () => {
    const waiter = await waiting();
    writeFileSync(join(claimDir, 'gate'), `netdra-gate 1\nserved ${sandbox}\n`);
    expect(await waiter.outcome).toMatchObject({ code: 0 });
  });

  it.each<[string, () => Promise<void>, string]>([
    [
      'the driver reported a reason',
      () => metadata.holdGate(claim, sandbox, 'the VF is in pod default/old'),
      `${late}: the VF is in pod default/old`,
    ],
    [
      'the driver reported no reason',
      () => metadata.holdGate(claim, sandbox, ''),
      `${late}: the driver gives no reason`,
    ],
    ['the gate is open for another sandbox', () => serve(other), `${late}: they are in sandbox ${other}`],
    [
      'the driver did not write the gate',
      async () => undefined,
      `${late}: the driver has said nothing about this sandbox, it may not be running`,
    ],
    [
      'the driver reported only why another sandbox waits',
      () => metadata.holdGate(claim, other, 'not yours'),
      `${late}: the driver has said nothing about this sandbox, it may not be running`,
    ],
  ])('fails at its timeout: %s', async (_what, prepareGate, reason) => {
    await prepareGate();
    const { code, stderr, ms } = await run();
    expect({ code, stderr }).toEqual({ code: 4, stderr: message(reason) });
    expect(ms).toBeGreaterThanOrEqual(300);
  });

  it('shares one deadline among all its hooks, counted from the start of its first process', async () => {
    // The first process of these tests is older than the timeout, which the program's own time is far from.
    const state = stateOf(containerd, { pid: 1 });
    const timeout = String(Math.floor(ageSecondsOf(1)));
    const { code, ms } = await run(state, timeout);
    expect(code).toBe(4);
    expect(ms).toBeLessThan(Number(timeout) * 1_000);
    // Its time is over, and an open gate lets it pass all the same.
    await serve();
    expect(await run(state, timeout)).toMatchObject({ code: 0 });
  });

  it("reports the driver's last message about its sandbox", async () => {
    await metadata.holdGate(claim, sandbox, 'CNI is slow');
    const waiter = new Run(stateOf(ofContainerd), '3');
    await untilWaiting(waiter);
    await metadata.withdraw(claim);
    expect(await waiter.outcome).toMatchObject({ code: 4, stderr: message(`${late}: CNI is slow`) });
  });
});

describe('a container whose devices will never be ready', () => {
  it('fails at once when its sandbox has ended', async () => {
    await metadata.endGate(claim, sandbox);
    const { code, stderr, ms } = await run(stateOf(), '50');
    expect({ code, stderr }).toEqual({ code: 1, stderr: message('the sandbox of the container is being stopped') });
    expect(ms).toBeLessThan(25_000);
  });

  it('fails when its sandbox ends while it waits', async () => {
    const waiter = await waiting();
    await metadata.endGate(claim, sandbox);
    expect(await waiter.outcome).toMatchObject({ code: 1, stderr: expect.stringContaining('is being stopped') });
  });

  it.each([
    ['is unprepared', () => metadata.unprepare(claim)],
    // The same path, another directory.
    ['is prepared for another claim of the same name', () => prepare('next-uid')],
    ['is moved to another directory', async () => renameSync(claimDir, `${claimDir}-x`)],
  ])('fails if its claim %s while it waits', async (_what, end) => {
    const waiter = await waiting();
    await end();
    const stderr = message('the claim is not prepared on this node any more');
    expect(await waiter.outcome).toMatchObject({ code: 1, stderr });
  });

  it('fails at once if its claim is not prepared', async () => {
    await metadata.unprepare(claim);
    const stderr = message('the claim is not prepared on this node any more');
    expect(await run(stateOf(), '50')).toMatchObject({ code: 1, stderr });
    mkdirSync(join(dir.path, 'data/dra-device-metadata'), { recursive: true });
    writeFileSync(claimDir, '');
    expect(await run(stateOf(), '50')).toMatchObject({ code: 1, stderr });
  });

  it('stops waiting when the first process of the container dies', async () => {
    const init = spawn('sleep', ['1000'], { stdio: 'ignore' });
    const waiter = await waiting(stateOf(containerd, { pid: init.pid }));
    init.kill('SIGKILL');
    expect(await waiter.outcome).toMatchObject({ code: 1, stderr: message('the container has ended') });
  });

  it('stops waiting when the first process of the container is a zombie', async () => {
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

  it('stops waiting when the runtime that called the hook dies', async () => {
    const state = join(dir.path, 'state');
    writeFileSync(state, stateOf(ofContainerd));
    const script = '"$0" --claim-dir "$1" --timeout 50 < "$2" & exec sleep 1000';
    const runtime = spawn('sh', ['-c', script, program, claimDir, state], { stdio: ['ignore', 'ignore', 'pipe'] });
    const stderr = text(runtime.stderr);
    await expect.poll(announced).toHaveLength(1);
    runtime.kill('SIGKILL');
    expect(await stderr).toBe(message('the container runtime has given the container up'));
  });

  it('stops waiting at once on SIGTERM', async () => {
    const waiter = await waiting();
    waiter.child.kill('SIGTERM');
    const { ms, ...outcome } = await waiter.outcome;
    expect(outcome).toMatchObject({ signal: 'SIGTERM', stderr: '' });
    expect(ms).toBeLessThan(25_000);
  });
});

describe('a waiting container', () => {
  const ofCrio = {
    'io.kubernetes.cri-o.SandboxID': sandbox,
    'io.kubernetes.pod.uid': pod.podUid,
    'io.kubernetes.pod.namespace': pod.podNamespace,
    'io.kubernetes.pod.name': pod.podName,
  };
  const nameOf = ({ child }: Run) => `waiting.${sandbox}.${child.pid}`;
  const expected = { claim, sandboxId: sandbox, ...pod };

  it.each([
    ['containerd', ofContainerd],
    ['CRI-O', ofCrio],
  ])('announces its sandbox to the driver until its devices are ready: %s', async (_runtime, annotations) => {
    const waiter = await waiting(stateOf(annotations));
    expect(announced()).toEqual([nameOf(waiter)]);
    expect(statSync(join(claimDir, nameOf(waiter))).mode & 0o777).toBe(0o600);
    expect(await metadata.waiting()).toEqual({ sandboxes: [expected], problems: [] });
    await serve();
    expect(await waiter.outcome).toMatchObject({ code: 0, stderr: '' });
    expect(announced()).toEqual([]);
  });

  it('announces its sandbox with the name of the network namespace', async () => {
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

  it('renews its announcement as long as it waits', async () => {
    const waiter = await waiting(stateOf(ofContainerd));
    const longAgo = new Date('2026-01-01');
    utimesSync(join(claimDir, nameOf(waiter)), longAgo, longAgo);
    expect((await metadata.waiting()).sandboxes).toEqual([]);
    await vi.waitFor(async () => expect((await metadata.waiting()).sandboxes).toEqual([expected]), 20_000);
    await metadata.endGate(claim, sandbox);
    expect(await waiter.outcome).toMatchObject({ code: 1 });
    expect(announced()).toEqual([]);
  });

  it.each(['SIGTERM', 'SIGINT', 'SIGHUP'] as const)('withdraws its announcement on %s', async (signal) => {
    const waiter = await waiting(stateOf(ofContainerd));
    expect(announced()).toHaveLength(1);
    waiter.child.kill(signal);
    expect(await waiter.outcome).toMatchObject({ signal, stderr: '' });
    expect(announced()).toEqual([]);
  });

  it('withdraws its announcement at its timeout', async () => {
    expect(await run(stateOf(ofContainerd))).toMatchObject({ code: 4 });
    expect(announced()).toEqual([]);
  });

  it('keeps its announcement when another container of the sandbox ends', async () => {
    const [first, second] = [await waiting(stateOf(ofContainerd)), await waiting(stateOf(ofContainerd))];
    first.child.kill('SIGTERM');
    await first.outcome;
    expect(announced()).toEqual([nameOf(second)]);
    expect((await metadata.waiting()).sandboxes).toEqual([expected]);
    await serve();
    await second.outcome;
    expect(announced()).toEqual([]);
  });

  it('replaces the stale announcement of a killed container', async () => {
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
    ['the runtime does not report the pod', containerd],
    ['the runtime reports the pod only in part', { ...ofContainerd, 'io.kubernetes.cri.sandbox-uid': undefined }],
    ['the pod has annotations of another runtime', { ...ofContainerd, ...ofCrio }],
    [
      "the pod's UID contains a line break",
      { ...ofContainerd, 'io.kubernetes.cri.sandbox-uid': 'a\nnetns /run/netns/b' },
    ],
    ["the pod's name is too long", { ...ofContainerd, 'io.kubernetes.cri.sandbox-name': 'a'.repeat(254) }],
    ["the pod's name is empty", { ...ofContainerd, 'io.kubernetes.cri.sandbox-name': '' }],
    ['the sandbox ID is a path', { ...ofContainerd, 'io.kubernetes.cri.sandbox-id': '../a' }],
  ])('waits without an announcement if %s', async (_why, annotations) => {
    const waiter = await waiting(stateOf(annotations));
    expect(announced()).toEqual([]);
    await metadata.unprepare(claim);
    expect(await waiter.outcome).toMatchObject({ code: 1 });
  });

  it('waits silently if it cannot write its announcement', async () => {
    const script = 'mkdir "$2/.waiting.$1.$$.tmp"; exec "$0" --claim-dir "$2" --timeout 50';
    const child = spawn('sh', ['-c', script, program, sandbox, claimDir], { stdio: ['pipe', 'ignore', 'pipe'] });
    const stderr = text(child.stderr);
    child.stdin.end(stateOf(ofContainerd));
    await untilWaiting({ child, isOver: false });
    await serve();
    expect([...(await once(child, 'close')), await stderr]).toEqual([0, null, '']);
  });

  it('makes no announcement if its devices are already ready', async () => {
    await serve();
    utimesSync(claimDir, new Date(0), new Date(0));
    expect(await run(stateOf(ofContainerd))).toMatchObject({ code: 0 });
    expect(statSync(claimDir).mtimeMs).toBe(0);
  });
});
