import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { onTestFinished } from 'vitest';
import { createPlugin, type Plugin, type PluginOptions } from '../../../nri/index.ts';
import { type FakeRuntime, type FakeRuntimeOptions, startFakeRuntime } from '../../../nri/testing.ts';
import type { Channel, ChannelReceiver } from '../../../nri/ttrpc/channel.ts';
import { type TtrpcFrame, TtrpcFrameDecoder } from '../../../nri/ttrpc/frame.ts';

/** A file of captured traffic: test/fixtures/nri-vectors.json. */
interface Vectors {
  captures: Record<string, Vector[]>;
}

export interface Vector {
  dir: 'tx' | 'rx';
  connId: number;
  muxLen: number;
  ttrpc: { dataLen: number; streamId: number; type: number; flags: number };
  hex: string;
  method: string;
}

export function readVectors(): Record<string, Vector[]> {
  const text = readFileSync(new URL('../../fixtures/nri-vectors.json', import.meta.url), 'utf8');
  const { captures } = JSON.parse(text) as Vectors;
  for (const list of Object.values(captures)) {
    for (const vector of list) {
      // A response does not say what it answers.
      vector.method ??= list.find((other) => isRequestOf(other, vector))?.method ?? 'unknown';
    }
  }
  return captures;
}

function isRequestOf(request: Vector, response: Vector): boolean {
  return (
    request.connId === response.connId && request.ttrpc.streamId === response.ttrpc.streamId && request.ttrpc.type === 1
  );
}

/** The bytes in pieces, cut at these offsets (in any order, repeats and offsets beyond the end included). */
export function cutAt(bytes: Buffer, offsets: readonly number[]): Buffer[] {
  const inside = offsets.map((offset) => offset % (bytes.length + 1)).sort((a, b) => a - b);
  return [0, ...inside].map((start, index) => bytes.subarray(start, inside[index] ?? bytes.length));
}

/** A socket path that is gone after the test. */
export function socketPath(): string {
  const directory = mkdtempSync(join(tmpdir(), 'nri-test-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  return join(directory, 'nri.sock');
}

/** Two ends of one unix socket connection. */
export async function socketPair(): Promise<[Socket, Socket]> {
  const server = createServer();
  const path = socketPath();
  const accepted = new Promise<Socket>((resolve) => server.once('connection', resolve));
  await new Promise<void>((resolve) => server.listen(path, resolve));
  const near = connect(path);
  const far = await accepted;
  server.close();
  onTestFinished(() => {
    near.destroy();
    far.destroy();
  });
  return [near, far];
}

/** One end of a connection whose other end is the test: what was sent is in `sent`. */
export class TestChannel implements Channel {
  readonly sent: Buffer[] = [];
  receiver: ChannelReceiver | undefined;
  error: Error | undefined;

  /** What was sent, as ttrpc frames. */
  get frames(): TtrpcFrame[] {
    const frames: TtrpcFrame[] = [];
    new TtrpcFrameDecoder().push(Buffer.concat(this.sent), (frame) => frames.push(frame as TtrpcFrame));
    return frames;
  }

  send(frame: Buffer): void {
    if (this.error !== undefined) throw this.error;
    this.sent.push(frame);
  }

  receive(receiver: ChannelReceiver): void {
    this.receiver = receiver;
  }

  close(error?: Error): void {
    this.error = error ?? new Error('closed');
    this.receiver?.closed(error);
  }

  arrive(bytes: Buffer): void {
    this.receiver?.data(bytes);
  }
}

export interface LogEntry {
  level: 'debug' | 'info' | 'warn' | 'error';
  fields: Record<string, unknown>;
  message: string;
}

/** A logger that keeps its entries. */
export function recordingLogger() {
  const entries: LogEntry[] = [];
  const at = (level: LogEntry['level']) => (fields: object, message: string) =>
    void entries.push({ level, fields: fields as Record<string, unknown>, message });
  /** Without the messages for developers. */
  const notable = () => entries.filter(({ level }) => level !== 'debug');
  return { entries, notable, debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') };
}

/** Waits until something holds; fails by the time limit of the test if it never does. */
export async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await sleep(2);
}

export interface Stage {
  runtime: FakeRuntime;
  plugin: Plugin;
  log: ReturnType<typeof recordingLogger>;
}

/** A started runtime and a plugin called `test` that is on its way to it. */
export async function stage(
  plugin: Omit<Partial<PluginOptions>, 'logger'>,
  runtime: Omit<FakeRuntimeOptions, 'socketPath'> = {},
): Promise<Stage> {
  const path = socketPath();
  const log = recordingLogger();
  const fake = await startFakeRuntime({ socketPath: path, ...runtime });
  const own = createPlugin({
    name: 'test',
    index: '10',
    handlers: {},
    socketPath: path,
    logger: log,
    disposeTimeoutMs: 300,
    ...plugin,
    backoff: { initialMs: 20, dialMaxMs: 40, maxMs: 80, ...plugin.backoff },
  });
  onTestFinished(async () => {
    await own[Symbol.asyncDispose]();
    await fake.stop();
  });
  own.start();
  return { runtime: fake, plugin: own, log };
}
