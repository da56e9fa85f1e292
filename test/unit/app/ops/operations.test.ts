import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { InstanceToken, Operations, SuccessorReport } from '../../../../src/app/ops/index.ts';
import { parseAddress } from '../../../../src/instance/parse-flags.ts';
import { systemClock } from '../../../../src/lib/clock.ts';
import { explain } from '../../../../src/lib/errors.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';
import { ManualClock } from '../../../doubles/manual-clock.ts';
import { testDriver } from '../../../doubles/objects.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';

describe('Operations', () => {
  const start = (address: string, clock: ManualClock, logger: RecordingLogger, waitForAddress: boolean) =>
    Operations.start({
      driver: testDriver,
      version: '1',
      metadataEnabled: true,
      clock,
      logger,
      address,
      waitForAddress,
    });
  const has = (logger: RecordingLogger, message: string) => logger.lines.some((line) => line.message === message);

  /** An instance that serves, and its address. */
  async function startFirst() {
    const logger = new RecordingLogger();
    const operations = await start('127.0.0.1:0', new ManualClock(), logger, false);
    const { fields } = logger.lines.find(({ message }) => message === 'serving metrics and probes') ?? {};
    return { operations, address: `127.0.0.1:${(fields as { port: number }).port}` };
  }

  it('takes over the address of the instance that it replaces when that instance ends', async () => {
    const first = await startFirst();
    const [clock, logger] = [new ManualClock(), new RecordingLogger()];
    await using second = await start(first.address, clock, logger, true);
    second.setConnected('kubelet');
    second.setConnected('nri');
    second.setPublished();
    const ready = async () => (await fetch(`http://${first.address}/readyz`)).status;
    expect(await ready()).toBe(503);
    await first.operations[Symbol.asyncDispose]();
    await expect
      .poll(() => {
        clock.advance(250);
        return has(logger, 'serving metrics and probes');
      })
      .toBe(true);
    expect(await ready()).toBe(200);
  });

  describe('while the next instance waits for its address', () => {
    interface Instance {
      revision: string;
      isReady: boolean;
    }

    /** Two instances of one node. */
    async function startBoth(one: Instance, next: Instance) {
      const dir = tempDir();
      const path = join(dir.path, 'successor.json');
      const clock = new ManualClock();
      const start = async (address: string, { revision, isReady }: Instance, logger = new RecordingLogger()) => {
        const successor = new SuccessorReport(path);
        const options = { driver: testDriver, version: '1', metadataEnabled: true, clock, logger, address, successor };
        const operations = await Operations.start({ ...options, revision, waitForAddress: true });
        operations.setConnected('kubelet');
        operations.setConnected('nri', isReady ? undefined : 'no socket');
        operations.setPublished();
        return { operations, logger };
      };
      const first = await start('127.0.0.1:0', one);
      const { port } = first.logger.lines.find(({ message }) => message === 'serving metrics and probes')?.fields ?? {};
      const second = await start(`127.0.0.1:${Number(port)}`, next);
      return {
        path,
        second: second.operations,
        /** Answer to a probe. */
        ask: async (query = '') => {
          clock.advance(250);
          const response = await fetch(`http://127.0.0.1:${Number(port)}/readyz${query}`);
          return { status: response.status, text: await response.text() };
        },
        async [Symbol.asyncDispose]() {
          await second.operations[Symbol.asyncDispose]();
          await first.operations[Symbol.asyncDispose]();
          dir[Symbol.dispose]();
        },
      };
    }

    // With the readiness of the other instance, an update would end an old instance that works, or a rollback would wait for
    // the bad one.
    it.each<[string, Instance, Instance]>([
      [
        'an update to a version that cannot connect',
        { revision: 'a', isReady: true },
        { revision: 'b', isReady: false },
      ],
      ['a rollback from such a version', { revision: 'b', isReady: false }, { revision: 'a', isReady: true }],
    ])('answers probes of each pod with the readiness of its instance, in %s', async (_, one, next) => {
      await using both = await startBoth(one, next);
      const status = async (revision: string) => (await both.ask(`?revision=${revision}`)).status;
      await expect.poll(() => status('a')).toBe(200);
      await expect.poll(async () => (await both.ask('?revision=b')).text).toContain('[-]nri failed: no socket');
      expect(await status('b')).toBe(503);
      expect((await both.ask()).status).toBe(one.isReady ? 200 : 503);
      both.second.setConnected('nri');
      await expect.poll(() => status(next.revision)).toBe(200);
      await both.second[Symbol.asyncDispose]();
      expect(await both.ask(`?revision=${next.revision}`)).toEqual({
        status: 503,
        text: 'no instance of this revision has reported its readiness yet\n',
      });
    });

    // The DaemonSet controller ends an old pod that is not ready, whatever the new one is.
    it.each([
      [true, false],
      [false, true],
    ])(
      'is ready if either instance is ready and both have the same revision, old: %s, next: %s',
      async (isReady, isNextReady) => {
        const revision = 'a';
        await using both = await startBoth({ revision, isReady }, { revision, isReady: isNextReady });
        await expect.poll(async () => (await both.ask('?revision=a')).status).toBe(200);
        await both.second[Symbol.asyncDispose]();
        expect((await both.ask('?revision=a')).status).toBe(isReady ? 200 : 503);
      },
    );

    it('ignores reports of a killed instance and of an earlier boot of the node', async () => {
      await using both = await startBoth({ revision: 'a', isReady: false }, { revision: 'b', isReady: true });
      await both.second[Symbol.asyncDispose]();
      const nowMs = Number(process.hrtime.bigint() / 1_000_000n);
      for (const [atMs, status] of [
        [nowMs, 200],
        [nowMs - 11_000, 503],
        [nowMs + 3_600_000, 503],
      ]) {
        writeFileSync(both.path, JSON.stringify({ atMs, revision: 'b', ready: true, report: '' }));
        expect([atMs, (await both.ask('?revision=b')).status]).toEqual([atMs, status]);
      }
    });
  });

  it('exits with an error if another program has its address, at start or later', async () => {
    using dir = tempDir();
    const token = InstanceToken.open(join(dir.path, 'token'));
    for (const status of [200, 404]) {
      // It answers the probes of the kubelet as if all were well.
      const foreign = createServer((_, response) => response.writeHead(status).end('ok\n')).listen(0, '127.0.0.1');
      await once(foreign, 'listening');
      const address = `127.0.0.1:${(foreign.address() as AddressInfo).port}`;
      const options = {
        driver: 'd',
        version: '0',
        metadataEnabled: true,
        clock: systemClock,
        logger: new RecordingLogger(),
      };
      await expect(Operations.start({ ...options, address, waitForAddress: true, token })).rejects.toThrow(
        `another program listens on ${address}, where metrics and probes are served`,
      );
      foreign.closeAllConnections();
      foreign.close();
      await once(foreign, 'close');
      expect(await token.whoHas(parseAddress(address))).toBe('free');
      await using first = await Operations.start({ ...options, address, token });
      expect(await token.whoHas(parseAddress(address))).toBe('instance');
      // Of another node, or another driver.
      const other = InstanceToken.open(join(dir.path, `other-${status}`));
      expect(await other.whoHas(parseAddress(address))).toBe('foreign');
      await using second = await Operations.start({ ...options, address, waitForAddress: true, token });
      expect([first, second]).toHaveLength(2);
    }
  });

  it('rejects a secret file that a full disk or power loss left empty', () => {
    using dir = tempDir();
    const path = join(dir.path, 'token');
    writeFileSync(path, '');
    const token = InstanceToken.open(path);
    expect(token.prove('nonce')).not.toBe(createHmac('sha256', '').update('nonce').digest('hex'));
    expect(InstanceToken.open(path).prove('nonce')).toBe(token.prove('nonce'));
    expect(statSync(path).mode & 0o777).toBe(0o600);
  });

  it('waits while a program that does not answer holds its address', async () => {
    using dir = tempDir();
    const token = InstanceToken.open(join(dir.path, 'token'));
    const silent = createServer(() => undefined).listen(0, '127.0.0.1');
    await once(silent, 'listening');
    const address = `127.0.0.1:${(silent.address() as AddressInfo).port}`;
    const options = { driver: 'd', version: '0', metadataEnabled: true, clock: systemClock };
    const logger = new RecordingLogger();
    await using waiting = await Operations.start({ ...options, address, waitForAddress: true, token, logger });
    expect(waiting.readiness.answer().ready).toBe(false);
    expect(await token.whoHas(parseAddress(address))).toBe('silent');
    silent.closeAllConnections();
    silent.close();
    await expect.poll(() => has(logger, 'serving metrics and probes')).toBe(true);
  });

  it.each(['127.0.0.1', '::1', '::ffff:127.0.0.1', '::'])(
    'is recognized as a driver instance by another instance at %s',
    async (host) => {
      using dir = tempDir();
      const token = InstanceToken.open(join(dir.path, 'token'));
      const logger = new RecordingLogger();
      const address = `${host.includes(':') ? `[${host}]` : host}:0`;
      const options = { driver: 'd', version: '0', metadataEnabled: true, clock: systemClock, logger };
      await using _instance = await Operations.start({ ...options, address, token });
      const { port } = logger.lines.find(({ message }) => message === 'serving metrics and probes')?.fields ?? {};
      expect(await token.whoHas({ host, port: Number(port) })).toBe('instance');
    },
  );

  it('can be stopped while it waits', async () => {
    const first = await startFirst();
    const second = await start(first.address, new ManualClock(), new RecordingLogger(), true);
    await second[Symbol.asyncDispose]();
    await first.operations[Symbol.asyncDispose]();
  });

  it.each([
    ['192.0.2.1:0', /EADDRNOTAVAIL.*\(choose an address of this node with --http-address\)$/],
    ['no-such-host.invalid:0', /\(choose an address of this node with --http-address\)$/],
  ])('reports %s without blaming another program', async (address, message) => {
    const options = { driver: 'd', version: '0', metadataEnabled: true, clock: systemClock };
    const failed = Operations.start({ ...options, address, logger: new RecordingLogger() });
    expect(await failed.catch(explain)).toMatch(message);
  });

  it('does not start on a taken address outside of a rolling update', async () => {
    const first = await startFirst();
    await expect(start(first.address, new ManualClock(), new RecordingLogger(), false)).rejects.toMatchObject({
      code: 'address-unavailable',
      message: `cannot listen on ${first.address}`,
    });
    await first.operations[Symbol.asyncDispose]();
  });
});
