import { rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer, type ServerResponse } from 'node:http';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { askDriver, serveTools } from '../../../src/instance/tool-socket.ts';
import { explain } from '../../../src/lib/errors.ts';
import { RecordingLogger } from '../../doubles/logger.ts';
import { ManualClock } from '../../doubles/manual-clock.ts';
import { tempDir } from '../../doubles/temp-dir.ts';

describe('the socket for tools', () => {
  it('answers only root, and refuses connections once the driver has ended', async () => {
    using dir = tempDir();
    const logger = new RecordingLogger();
    expect(await askDriver(dir.path, 'log')).toBeUndefined();
    const failing = () => {
      throw new Error('the devices are not listed');
    };
    {
      const answers = { log: () => 'é\n'.repeat(500_000), failing };
      await using _server = await serveTools(dir.path, answers, { instance: 'a', clock: new ManualClock(), logger });
      expect(await askDriver(dir.path, 'log')).toHaveLength(1_000_000);
      expect(statSync(join(dir.path, 'tools.sock')).mode & 0o777).toBe(0o600);
      expect(await askDriver(dir.path, 'failing').catch(explain)).toMatch(
        /^the driver does not answer at .*tools\.sock: it answers with status 500: the devices are not listed/,
      );
      expect(await askDriver(dir.path, 'other').catch(explain)).toContain('status 404');
    }
    expect(await askDriver(dir.path, 'log')).toBeUndefined();
    expect(logger.lines).toEqual([]);
  });

  it('belongs to the newer instance during a rolling update, even after the older instance has ended', async () => {
    using dir = tempDir();
    const logger = new RecordingLogger();
    const clock = new ManualClock();
    const start = (instance: string) => serveTools(dir.path, { who: () => instance }, { instance, clock, logger });
    const older = await start('older');
    await using _newer = await start('newer');
    expect(await askDriver(dir.path, 'who')).toBe('newer');
    clock.advance(60_000);
    await expect.poll(() => clock.sleeping()).toEqual([60_000, 60_000]);
    expect(await askDriver(dir.path, 'who')).toBe('newer');
    await older[Symbol.asyncDispose]();
    expect(await askDriver(dir.path, 'who')).toBe('newer');
  });

  it('belongs to the older instance again if the newer instance ends first, or if the socket is removed', async () => {
    using dir = tempDir();
    const logger = new RecordingLogger();
    const clock = new ManualClock();
    let regained = 0;
    const onRegained = () => void regained++;
    await using _older = await serveTools(
      dir.path,
      { who: () => 'older' },
      { instance: 'a', clock, logger, onRegained },
    );
    const path = join(dir.path, 'tools.sock');
    const ends = [
      async () => {
        await using _ = await serveTools(dir.path, {}, { instance: 'b', clock: new ManualClock(), logger });
      },
      async () => rmSync(path),
    ];
    for (const [index, end] of ends.entries()) {
      await end();
      expect(await askDriver(dir.path, 'who')).toBeUndefined();
      clock.advance(60_000);
      await expect.poll(() => regained).toBe(index + 1);
      expect(await askDriver(dir.path, 'who')).toBe('older');
      expect(statSync(path).mode & 0o777).toBe(0o600);
      await expect.poll(() => clock.sleeping()).toEqual([60_000]);
    }
    clock.advance(60_000);
    await expect.poll(() => clock.sleeping()).toEqual([60_000]);
    expect(regained).toBe(2);
    expect(logger.lines).toEqual([]);
  });

  it('is optional for the driver, and tools reject an oversize answer from another program on it', async () => {
    using dir = tempDir();
    const logger = new RecordingLogger();
    writeFileSync(join(dir.path, 'file'), '');
    {
      await using _server = await serveTools(
        join(dir.path, 'file'),
        {},
        { instance: 'a', clock: new ManualClock(), logger },
      );
      expect(logger.messages()).toEqual(['cannot listen for the tools of this node']);
    }
    expect(await askDriver(join(dir.path, 'file'), 'log')).toBeUndefined();
    const server = createServer((_request, response) => response.end(Buffer.alloc(17_000_000)));
    await new Promise<void>((resolve) => server.listen(join(dir.path, 'tools.sock'), resolve));
    expect(await askDriver(dir.path, 'log').catch(explain)).toContain('its answer is over 16000000 bytes');
    server.closeAllConnections();
    server.close();
  });

  it.each([
    ['says nothing', () => undefined],
    ['stops in the middle of its answer', (response: ServerResponse) => void response.write('half')],
  ])('is closed by a tool whose driver %s, so that the tool ends', async (_what, answer) => {
    using dir = tempDir();
    const server = createServer((_request, response) => answer(response));
    await new Promise<void>((resolve) => server.listen(join(dir.path, 'tools.sock'), resolve));
    const connections = () => promisify(server.getConnections.bind(server))();
    try {
      expect(await askDriver(dir.path, 'log', 200).catch(explain)).toMatch(/^the driver does not answer at/);
      await expect.poll(connections).toBe(0);
    } finally {
      server.closeAllConnections();
      server.close();
    }
  });
});
