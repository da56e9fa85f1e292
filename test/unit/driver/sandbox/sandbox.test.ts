import { beforeEach, describe, expect, it } from 'vitest';
import { SandboxError, type StoredClaim, type StoredDevice } from '../../../../src/driver/model/index.ts';
import { NamespaceEnds } from '../../../../src/driver/sandbox/namespace-ends.ts';
import type { SandboxFacts } from '../../../../src/driver/sandbox/pod.ts';
import { Sandbox } from '../../../../src/driver/sandbox/sandbox.ts';
import type { SandboxDeps } from '../../../../src/driver/sandbox/sandbox-deps.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';
import { ManualClock } from '../../../doubles/manual-clock.ts';
import { storedClaims } from '../../../doubles/stored-claims.ts';
import { FakeNetworks, pass, turns } from './fake-networks.ts';
import { claim, device, FakeWork } from './fake-work.ts';

const facts = { sandboxId: 's1', podUid: 'pod', podNamespace: 'apps', podName: 'web-0', netnsPath: '/netns/s1' };

describe('Sandbox', () => {
  let clock: ManualClock;
  let logger: RecordingLogger;
  let networks: FakeNetworks;
  let work: FakeWork;
  let claims: StoredClaim[];
  let isUnreadable: boolean;
  let failures: string[];
  let lostDevices: (readonly StoredDevice[])[];
  let reported: string[];
  let sandbox: Sandbox;
  const open = (liveUpdates = false, of: SandboxFacts = facts) =>
    new Sandbox(of, {
      store: {
        ...storedClaims(() => claims),
        claimsOfPod: () => {
          if (isUnreadable) throw new Error('disk I/O error');
          return claims;
        },
      },
      claims: {
        podLinks: work.podLinks,
        serve: work.serve.bind(work),
        serveWithoutVfs: work.serveWithoutVfs.bind(work),
        detach: work.detach.bind(work),
        hold: async ({ name }, _, reason) => void work.done.push(`hold ${name}: ${reason}`),
        end: work.end.bind(work),
      },
      networks,
      ends: new NamespaceEnds({ networks, clock }),
      onFailure: ({ name }, reason, _, lost) => {
        failures.push(`${name}: ${reason}`);
        if (lost !== undefined) lostDevices.push(lost);
      },
      onWaited: () => undefined,
      onFlapping: () => undefined,
      onSlow: ({ podUid }, { name }, progress) => reported.push(`${podUid}, ${name}: ${progress}`),
      liveUpdates,
      clock,
      logger,
    } satisfies SandboxDeps);

  beforeEach(() => {
    clock = new ManualClock();
    logger = new RecordingLogger();
    networks = new FakeNetworks('/netns/s1');
    work = new FakeWork();
    claims = [claim('a'), claim('b')];
    isUnreadable = false;
    failures = [];
    lostDevices = [];
    reported = [];
    sandbox = open();
  });

  it('is ready once all its claims are ready, and then stops reading its VFs', async () => {
    const [first, second] = [sandbox.want('ready'), sandbox.want('ready')];
    expect(sandbox.phase).toBe('attaching');
    await Promise.all([first, second]);
    await sandbox.want('ready');
    expect([sandbox.phase, work.done, networks.open_]).toEqual(['ready', ['serve a', 'serve b'], 0]);
    expect(['a', 'b', 'c'].map((uid) => sandbox.isReady(uid))).toEqual([true, true, false]);
    expect(logger.messages()).toEqual(['sandbox ready']);
  });

  it('does nothing for a pod without claims', async () => {
    claims = [];
    await sandbox.want('ready');
    expect([sandbox.phase, networks.opened, clock.sleeping()]).toEqual(['pending', 0, []]);
  });

  it('reports why it is not ready, and retries with growing pauses', async () => {
    const error = new SandboxError('vf-missing', 'the VF is gone');
    work.failures.set('b', error);
    await expect(sandbox.want('ready')).rejects.toBe(error);
    expect([sandbox.phase, sandbox.failure]).toEqual(['attaching', { error, attempts: 1 }]);
    expect([failures, work.done.at(-1)]).toEqual([['b: the VF is gone'], 'hold b: the VF is gone']);
    const pauses: number[] = [];
    for (let attempt = 0; attempt < 5; attempt++) {
      const [pause = 0] = clock.sleeping();
      pauses.push(pause);
      await pass(clock, pause);
    }
    expect([pauses, sandbox.failure?.attempts]).toEqual([[500, 1_000, 2_000, 4_000, 5_000], 6]);
    work.failures.clear();
    await pass(clock, 5_000);
    expect([sandbox.phase, sandbox.failure, clock.sleeping()]).toEqual(['ready', undefined, []]);
  });

  it('reports an unknown network namespace only after 30 s, since a container that waits can still announce it', async () => {
    const { netnsPath: _, ...lost } = facts;
    sandbox = open(false, { ...lost, isNetnsUnknown: true });
    await expect(sandbox.want('ready')).rejects.toThrow('does not report the network namespace');
    await pass(clock, 29_000);
    expect([failures, work.done.at(-1)]).toEqual([[], expect.stringMatching(/^hold b: the runtime does not report/)]);
    await pass(clock, 5_000);
    expect(failures).toEqual(['a', 'b'].map((name) => expect.stringContaining(`${name}: the runtime does not report`)));
    sandbox.locate(facts);
    await sandbox.want('ready');
    expect([sandbox.phase, failures.length]).toEqual(['ready', 2]);
  });

  it('resets the failure count and the retry pauses after it was ready for a minute', async () => {
    work.failures.set('a', new Error('not yet'));
    await sandbox.want('ready').catch(() => undefined);
    await pass(clock, 500);
    expect(sandbox.failure?.attempts).toBe(2);
    work.failures.clear();
    await sandbox.want('ready');
    clock.advance(60_000);
    work.failures.set('a', new Error('again'));
    await expect(sandbox.refresh()).rejects.toThrow('again');
    expect([sandbox.failure?.attempts, clock.sleeping()]).toEqual([1, [500]]);
  });

  it('reads everything again after a temporary store failure', async () => {
    await sandbox.want('ready');
    isUnreadable = true;
    await expect(sandbox.refresh()).rejects.toThrow('disk I/O error');
    isUnreadable = false;
    work.done.length = 0;
    await pass(clock, 500);
    expect([work.done, sandbox.failure]).toEqual([['serve a', 'serve b'], undefined]);
  });

  it('reads everything again after a store failure even while one of its claims waits', async () => {
    work.failures.set('b', new Error('not yet'));
    await sandbox.want('ready').catch(() => undefined);
    isUnreadable = true;
    await expect(sandbox.refresh()).rejects.toThrow('disk I/O error');
    isUnreadable = false;
    work.done.length = 0;
    await pass(clock, clock.sleeping()[0] ?? 0);
    expect(work.done).toContain('serve a');
  });

  it('reports once what the pod waits for if attaching takes long, and becomes ready with all VFs', async () => {
    const ipam = { type: 'dhcp' };
    const eight = Array.from({ length: 8 }, (_, index) => ({ ...device, name: `dev-${index}`, config: { ipam } }));
    claims = [claim('a', eight)];
    work.slow = { devices: eight, attach: () => clock.sleep(700) };
    const ready = sandbox.want('ready');
    for (let ms = 0; ms < 8 * 700; ms += 100) {
      await turns();
      expect(sandbox.isReady('a')).toBe(false);
      clock.advance(100);
    }
    await ready;
    const text =
      '4 of 8 devices are attached after 3 s; now device dev-4 (0000:01:10.0) of claim apps/a, with IPAM plugin dhcp';
    expect(reported).toEqual([`pod, a: ${text}`]);
    expect([sandbox.phase, failures, clock.sleeping()]).toEqual(['ready', [], []]);
    expect(logger.messages()).toEqual(['the pod waits for its devices', 'sandbox ready']);
  });

  it('reports that it writes metadata once all devices are attached', async () => {
    claims = [claim('a')];
    work.slow = { devices: claims[0]!.devices, attach: () => Promise.resolve() };
    work.hold = clock.sleep(5_000);
    const ready = sandbox.want('ready');
    await turns();
    await pass(clock, 3_000);
    clock.advance(2_000);
    await ready;
    expect(reported).toEqual([
      'pod, a: 1 of 1 devices are attached after 3 s; now the driver records claim apps/a and its metadata',
    ]);
  });

  it('reports again what the pod waits for only if the pod was ready in between', async () => {
    const attach = () => {
      work.hold = clock.sleep(10_000);
      return sandbox.refresh();
    };
    claims = [claim('a')];
    work.failures.set('a', new Error('not yet'));
    const first = attach().catch(() => undefined);
    await pass(clock, 3_000);
    await pass(clock, 7_000);
    await first;
    const second = attach().catch(() => undefined);
    await pass(clock, 3_000);
    expect(reported).toEqual([
      'pod, a: 0 of 1 devices are attached after 3 s; claim apps/a waits until other work on the claim has ended',
    ]);
    work.failures.clear();
    await pass(clock, 7_000);
    await second;
    expect([sandbox.phase, reported.length]).toEqual(['ready', 1]);
    const third = attach();
    await pass(clock, 10_000);
    await third;
    claims = [claim('b')];
    const last = attach().catch(() => undefined);
    await pass(clock, 3_000);
    expect(reported).toHaveLength(2);
    work.hold = undefined;
    await sandbox.want('gone');
    await last;
    expect([sandbox.phase, reported.length, clock.sleeping().length]).toEqual(['gone', 2, 1]);
  });

  it('aborts pending work when its pod ends, detaches the VFs, and never becomes ready again', async () => {
    work.hold = new Promise(() => undefined);
    const ready = sandbox.want('ready');
    await turns();
    await sandbox.want('gone');
    await ready;
    expect([sandbox.phase, work.done]).toEqual(['gone', ['serve a', 'detach a', 'detach b']]);
    await sandbox.want('ready');
    expect([sandbox.phase, sandbox.isReady('a'), work.done.length]).toEqual(['gone', false, 3]);
  });

  it('rejects a pod on the host network, or without a network namespace', async () => {
    networks.isHost = true;
    await expect(sandbox.want('ready')).rejects.toMatchObject({ code: 'host-network' });
    networks.isHost = false;
    networks.paths.clear();
    await expect(sandbox.want('ready')).rejects.toMatchObject({ code: 'netns-missing', retriable: true });
    expect(work.done.filter((call) => call.startsWith('serve'))).toEqual([]);
  });

  it('serves a claim that only monitors devices, although the pod is on the host network', async () => {
    const { netnsPath: _, ...onHost } = facts;
    claims = [claim('monitor', []), claim('a')];
    sandbox = open(false, onHost);
    await expect(sandbox.want('ready')).rejects.toMatchObject({ code: 'host-network' });
    expect([sandbox.isReady('monitor'), failures.map((failure) => failure.slice(0, 2))]).toEqual([true, ['a:']]);
    claims = [claim('monitor', [])];
    await sandbox.refresh();
    expect([sandbox.phase, clock.sleeping()]).toEqual(['ready', []]);
  });

  it.each(Array.from({ length: 20 }, (_, turn) => turn))(
    'serves a request that arrives %i event loop turns after the last claim was served',
    async (delay) => {
      const requested = async (request: () => Promise<void>) => {
        claims = [claim('a')];
        work = new FakeWork();
        sandbox = open();
        const held = Promise.withResolvers<void>();
        work.hold = held.promise;
        const ready = sandbox.want('ready').catch(() => undefined);
        await turns();
        held.resolve();
        for (let turn = 0; turn < delay; turn++) await Promise.resolve();
        await request();
        await ready;
        return work.done.slice(1);
      };
      expect(await requested(() => sandbox.want('gone'))).toEqual(['detach a']);
      expect(await requested(() => sandbox.refresh())).toEqual(['serve a']);
    },
  );

  it('reads tentative addresses again for some seconds', async () => {
    work.answer = 'tentative';
    await sandbox.want('ready');
    for (let look = 0; look < 20; look++) {
      await pass(clock, 500);
    }
    expect(work.done.filter((call) => call === 'serve a')).toHaveLength(11);
  });

  it("waits for the kernel's events on tentative addresses, without polling, if it follows the pod", async () => {
    sandbox = open(true);
    work.answer = 'tentative';
    await sandbox.want('ready');
    for (let look = 0; look < 20; look++) {
      await pass(clock, 500);
    }
    expect(work.done.filter((call) => call === 'serve a')).toHaveLength(1);
    networks.change();
    await pass(clock, 250);
    expect(work.done.filter((call) => call === 'serve a')).toHaveLength(2);
  });

  it('stops following a pod once its claims are unprepared, so that the kernel can free the network namespace', async () => {
    sandbox = open(true);
    await sandbox.want('ready');
    expect(networks.watches).toBe(1);
    claims = [];
    await sandbox.refresh();
    expect([networks.watches, clock.sleeping()]).toEqual([0, []]);
  });

  it('reads the network of the pod once per burst of changes, until the namespace changes', async () => {
    sandbox = open(true);
    await sandbox.want('ready');
    await pass(clock, 250);
    const looks = () => work.done.filter((call) => call === 'serve a').length;
    expect(looks()).toBe(1);
    for (let change = 0; change < 3; change++) networks.change();
    await pass(clock, 250);
    expect(looks()).toBe(2);
    networks.identity = 'another';
    await pass(clock, 1_000);
    expect([networks.watches, clock.sleeping()]).toEqual([0, []]);
  });

  it('reads the network of the pod again if it changes while a VF is being attached', async () => {
    sandbox = open(true);
    const held = Promise.withResolvers<void>();
    work.hold = held.promise;
    const ready = sandbox.want('ready');
    await turns();
    networks.change();
    await pass(clock, 250);
    held.resolve();
    await ready;
    expect(work.done).toEqual(['serve a', 'serve b', 'serve a', 'serve b']);
  });

  it('follows a pod only while one of its claims is ready', async () => {
    sandbox = open(true);
    for (const name of ['a', 'b']) work.failures.set(name, new Error('not yet'));
    await sandbox.want('ready').catch(() => undefined);
    networks.change();
    expect([networks.watches, clock.sleeping()]).toEqual([0, [500]]);
    work.failures.clear();
    await sandbox.want('ready');
    expect(networks.watches).toBe(1);
  });

  it('releases the namespace before VFs leave it', async () => {
    sandbox = open(true);
    await sandbox.want('ready');
    expect(networks.watches).toBe(1);
    await sandbox.want('gone');
    expect([networks.watches, clock.sleeping()]).toEqual([0, []]);
  });

  it('ends containers that wait for unready claims, even while VFs are being attached', async () => {
    work.failures.set('b', new Error('not yet'));
    await sandbox.want('ready').catch(() => undefined);
    work.hold = new Promise(() => undefined);
    sandbox.want('ready').catch(() => undefined);
    await sandbox.endWaiting();
    expect(work.done.filter((call) => call.startsWith('end'))).toEqual(['end b']);
  });

  it('stops all work when it is disposed of', async () => {
    work.hold = new Promise(() => undefined);
    const ready = sandbox.want('ready').catch((error: unknown) => error);
    await turns();
    await sandbox[Symbol.asyncDispose]();
    expect(await ready).toMatchObject({ message: 'the driver is being stopped' });
    expect(clock.sleeping()).toEqual([]);
  });

  describe('with several claims', () => {
    const left = new SandboxError('vf-left', 'the VF is no longer in the pod', { retriable: true });
    /** What was done since the last call. */
    const done = () => work.done.splice(0);

    it('serves all other claims if one claim fails, and reports only the failure', async () => {
      const error = new SandboxError('vf-missing', 'the VF is gone');
      work.failures.set('a', error);
      await expect(sandbox.want('ready')).rejects.toBe(error);
      expect([done(), failures]).toEqual([['serve a', 'hold a: the VF is gone', 'serve b'], ['a: the VF is gone']]);
      expect(['a', 'b'].map((uid) => sandbox.isReady(uid))).toEqual([false, true]);
      expect([sandbox.failureOf('a'), sandbox.failureOf('b')]).toMatchObject([{ error, attempts: 1 }, undefined]);
      expect([sandbox.phase, logger.messages('warn')]).toEqual(['attaching', ['cannot get a sandbox ready yet']]);
      expect(logger.lines.at(-1)?.fields).toMatchObject({ claim: 'apps/a', err: error, retryMs: 500 });
    });

    it('retries only failed claims, and counts the attempts for each claim', async () => {
      for (const name of ['a', 'b']) work.failures.set(name, new Error(`not yet ${name}`));
      await sandbox.want('ready').catch(() => undefined);
      work.failures.delete('b');
      await pass(clock, 500);
      done();
      await pass(clock, 1_000);
      expect(done()).toEqual(['serve a', 'hold a: not yet a']);
      claims = [...claims, claim('c')];
      work.failures.set('c', new Error('not yet c'));
      await sandbox.want('ready').catch(() => undefined);
      expect(['a', 'b', 'c'].map((uid) => sandbox.failureOf(uid)?.attempts)).toEqual([4, undefined, 1]);
      // A reason is a warning when it is new.
      expect(logger.messages('warn')).toHaveLength(3);
    });

    it('answers with the failure of each claim, and the name of the claim', async () => {
      for (const name of ['a', 'b']) work.failures.set(name, new Error(`not yet ${name}`));
      await expect(sandbox.want('ready')).rejects.toMatchObject({
        code: 'several-failures',
        message: 'claim apps/a: not yet a; claim apps/b: not yet b',
        retriable: false,
      });
      networks.paths.clear();
      await expect(sandbox.want('ready')).rejects.toMatchObject({ code: 'netns-missing' });
    });

    it('reads ready claims when the pod changes, but retries failed claims only after their pause', async () => {
      sandbox = open(true);
      work.failures.set('a', new Error('not yet'));
      await sandbox.want('ready').catch(() => undefined);
      done();
      networks.change();
      expect([networks.watches, clock.sleeping()]).toEqual([1, [250, 500, 1_000]]);
      await pass(clock, 250);
      expect([done(), clock.sleeping()]).toEqual([['serve b'], [250, 750]]);
      await pass(clock, 250);
      expect(done()).toEqual(['serve a', 'hold a: not yet']);
      await sandbox.refresh().catch(() => undefined);
      expect(done()).toEqual(['serve b', 'serve a', 'hold a: not yet']);
    });

    it('keeps a claim ready while its VFs are temporarily unreadable', async () => {
      await sandbox.want('ready');
      work.failures.set('a', new Error('no answer'));
      done();
      await expect(sandbox.refresh()).rejects.toThrow('no answer');
      expect([done(), failures, sandbox.phase, sandbox.isReady('a')]).toEqual([
        ['serve a', 'serve b'],
        [],
        'ready',
        true,
      ]);
      await pass(clock, 500);
      expect([done(), sandbox.failureOf('a')]).toEqual([['serve a'], undefined]);
    });

    it('is not ready after a VF left the pod, reports that, and attaches the VF again', async () => {
      await sandbox.want('ready');
      claims = [claim('a')];
      work.answer = { withdrawn: left, lost: [device] };
      done();
      await expect(sandbox.refresh()).rejects.toBe(left);
      expect([done(), failures]).toEqual([['serve a', `hold a: ${left.message}`], [`a: ${left.message}`]]);
      expect([sandbox.phase, sandbox.isReady('a'), sandbox.failureOf('a')?.error]).toEqual(['attaching', false, left]);
      expect(lostDevices).toEqual([[device]]);
      work.answer = 'ready';
      await pass(clock, 500);
      expect([sandbox.phase, sandbox.isReady('a'), clock.sleeping()]).toEqual(['ready', true, []]);
    });

    it('forgets an unprepared claim, and serves it when it is prepared again', async () => {
      await sandbox.want('ready');
      claims = [claim('b')];
      await sandbox.refresh();
      claims = [claim('a'), claim('b')];
      expect(sandbox.isReady('a')).toBe(false);
      done();
      await sandbox.want('ready');
      expect([done(), sandbox.isReady('a')]).toEqual([['serve a'], true]);
    });

    it('is ready once the failed claim is unprepared', async () => {
      work.failures.set('a', new Error('not yet'));
      await sandbox.want('ready').catch(() => undefined);
      claims = [claim('b')];
      await sandbox.refresh();
      expect([sandbox.phase, sandbox.failure, clock.sleeping()]).toEqual(['ready', undefined, []]);
    });

    it('detaches the VFs of all other claims if detaching one claim fails, and retries only that claim', async () => {
      await sandbox.want('ready');
      work.detachFailures.set('a', new Error('cannot restore its name'));
      done();
      await expect(sandbox.want('gone')).rejects.toThrow('cannot restore its name');
      expect([done(), sandbox.phase]).toEqual([['detach a', 'detach b'], 'detaching']);
      expect(logger.lines.slice(-2)).toMatchObject([
        { message: 'VFs detached', fields: { devices: 1 } },
        { message: 'cannot detach the VFs of a sandbox yet', fields: { claim: 'apps/a', retryMs: 500 } },
      ]);
      work.detachFailures.clear();
      await pass(clock, 500);
      expect([done(), sandbox.phase, clock.sleeping()]).toEqual([['detach a'], 'gone', []]);
    });

    it('ends the waiting containers of all claims, even if ending the containers of one claim fails', async () => {
      for (const name of ['a', 'b']) work.failures.set(name, new Error('not yet'));
      await sandbox.want('ready').catch(() => undefined);
      work.endFailure = new Error('read-only file system');
      done();
      await expect(sandbox.endWaiting()).rejects.toThrow('read-only file system');
      expect(done()).toEqual(['end a', 'end b']);
    });
  });
});
