import { beforeEach, describe, expect, it } from 'vitest';
import { pass, turns } from './fake-networks.ts';
import { claim, device } from './fake-work.ts';
import { openSandbox } from './open-sandbox.ts';

/** Claim `a` is ready, and claim `b` takes as long as its plugins do. */
function openWaiting(answer: 'ready' | 'tentative', options: { liveUpdates?: boolean } = {}) {
  const opened = openSandbox([claim('a'), claim('b', [{ ...device, name: 'slow' }])], options);
  const attached = Promise.withResolvers<void>();
  opened.work.answer = answer;
  opened.work.slow = { devices: [device], attach: async () => undefined };
  opened.work.holds.set('b', attached.promise);
  const ready = opened.sandbox.want('ready').catch((error: unknown) => error);
  return { ...opened, ready, attached };
}

describe('Sandbox while one of its claims is being attached', () => {
  let opened: ReturnType<typeof openWaiting>;
  const served = () => opened.work.done.filter((call) => call === 'serve a').length;

  beforeEach(() => {
    opened = openWaiting('tentative');
  });

  it('reads tentative addresses of its other claims until they are final', async () => {
    await pass(opened.clock, 500);
    expect(served()).toBe(2);
    opened.work.answer = 'ready';
    for (let tick = 0; tick < 4; tick++) await pass(opened.clock, 500);
    expect([served(), opened.sandbox.isReady('a'), opened.sandbox.isReady('b')]).toEqual([3, true, false]);
  });

  it('stops reading addresses that stay tentative after some seconds', async () => {
    for (let tick = 0; tick < 30; tick++) await pass(opened.clock, 500);
    expect(served()).toBe(11);
  });

  it('reads its other claims once per burst of changes in the pod', async () => {
    opened = openWaiting('ready', { liveUpdates: true });
    await pass(opened.clock, 2_000);
    expect(served()).toBe(1);
    for (let change = 0; change < 3; change++) opened.networks.change();
    await pass(opened.clock, 250);
    for (let tick = 0; tick < 4; tick++) await pass(opened.clock, 500);
    expect(served()).toBe(2);
  });

  it('counts a device as attached only once, even if it is read several times', async () => {
    for (let tick = 0; tick < 6; tick++) await pass(opened.clock, 500);
    expect(served()).toBeGreaterThan(2);
    expect(opened.slow).toEqual([
      expect.stringMatching(/^2 of 2 devices are attached after 3 s; now the driver records claim apps\/b /),
    ]);
  });

  it.each(['gone', 'away'] as const)(
    'stops reading the pod before it detaches the VFs, when its goal becomes %s',
    async (goal) => {
      await pass(opened.clock, 500);
      await opened.sandbox.want(goal);
      for (let tick = 0; tick < 4; tick++) await pass(opened.clock, 500);
      expect(opened.work.done.slice(-2)).toEqual(['detach a', 'detach b']);
    },
  );

  it('stops background reading once attached', async () => {
    opened.work.answer = 'ready';
    await pass(opened.clock, 500);
    opened.attached.resolve();
    expect(await opened.ready).toBeUndefined();
    const count = served();
    for (let tick = 0; tick < 4; tick++) await pass(opened.clock, 500);
    expect([served(), opened.clock.sleeping()]).toEqual([count, []]);
  });
});

describe('Sandbox with claims that wait for routers', () => {
  /** Claims `a` and `b` wait until their routers answer. */
  function openWithRouters() {
    const opened = openSandbox(['a', 'b', 'c'].map((name) => claim(name)));
    const routers = new Map(['a', 'b'].map((name) => [name, Promise.withResolvers<void>()]));
    for (const [name, { promise }] of routers) {
      opened.work.waiting.add(name);
      opened.work.holds.set(name, promise);
    }
    const ready = opened.sandbox.want('ready').catch((error: unknown) => error);
    const readyClaims = () => ['a', 'b', 'c'].filter((name) => opened.sandbox.isReady(name));
    return { ...opened, routers, ready, readyClaims };
  }

  it('attaches each claim while earlier claims wait, so that the waits do not add up', async () => {
    const { work, routers, ready, readyClaims, sandbox, waits, clock } = openWithRouters();
    await turns();
    expect([work.done, readyClaims()]).toEqual([['serve a', 'serve b', 'serve c'], ['c']]);
    clock.advance(400);
    routers.get('b')?.resolve();
    await turns();
    expect([sandbox.phase, readyClaims()]).toEqual(['attaching', ['b', 'c']]);
    routers.get('a')?.resolve();
    expect([await ready, readyClaims()]).toEqual([undefined, ['a', 'b', 'c']]);
    expect(waits).toEqual([['pod', 'ready', { queued: 0, attach: 400, write: 0, total: 400 }]]);
  });

  it('reports after three seconds which claim still waits for a router', async () => {
    const { clock, slow, routers } = openWithRouters();
    await turns();
    routers.get('a')?.resolve();
    await turns();
    clock.advance(3_000);
    await turns();
    expect(slow).toEqual([expect.stringMatching(/; claim apps\/b waits for an IPv6 address from a router$/)]);
  });

  it('reports a claim without an address while other claims still wait', async () => {
    const { work, routers, ready, sandbox } = openWithRouters();
    work.failures.set('b', new Error('no router'));
    routers.get('b')?.resolve();
    await turns();
    expect(sandbox.failureOf('b')).toMatchObject({ error: { message: 'no router' } });
    routers.get('a')?.resolve();
    expect(await ready).toMatchObject({ message: expect.stringContaining('no router') });
    expect(sandbox.isReady('a')).toBe(true);
  });

  it('reads ready claims while other claims wait', async () => {
    const { work, clock, sandbox } = openWithRouters();
    work.answer = 'tentative';
    await turns();
    clock.advance(500);
    await turns();
    expect(work.done).toEqual(['serve a', 'serve b', 'serve c', 'serve c']);
    await sandbox[Symbol.asyncDispose]();
  });

  it('ends the waits before it detaches the VFs and closes the network namespace', async () => {
    const { work, networks, sandbox } = openWithRouters();
    await turns();
    expect(networks.open_).toBe(1);
    await sandbox.want('gone');
    expect([networks.open_, work.done.slice(3)]).toEqual([0, ['detach a', 'detach b', 'detach c']]);
  });
});
