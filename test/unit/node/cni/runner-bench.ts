import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, expect } from 'vitest';
import { systemClock } from '../../../../src/lib/clock.ts';
import { type CniAttachment, CniError, CniRunner, parseCniNetwork } from '../../../../src/node/cni/index.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';
import { ScriptPlugins } from './script-plugins.ts';

/** A namespace that is there: the runner looks, the scripts do not go in. */
export const liveNetns = '/proc/self/ns/net';

export const never = { signal: new AbortController().signal };

export let dir: ReturnType<typeof tempDir>;

export let plugins: ScriptPlugins;

export let logger: RecordingLogger;

export let runner: CniRunner;

export function createRunner(options: { undoTimeoutMs?: number } = {}): CniRunner {
  const binDirs = [join(dir.path, 'none'), plugins.binDir];
  return new CniRunner({ binDirs, cacheDir: join(dir.path, 'cache'), clock: systemClock, logger, ...options });
}

export function attachmentOf(
  types: (string | object)[],
  rest: Partial<CniAttachment> & { cniVersion?: string } = {},
): CniAttachment {
  const { cniVersion = '1.0.0', ...others } = rest;
  const chain = types.map((type) => (typeof type === 'string' ? { type } : type));
  const network = parseCniNetwork({ cniVersion, name: 'fast', plugins: chain }, 'test');
  return { network, containerId: 'c1', netnsPath: liveNetns, ifName: 'net1', ...others };
}

/** The error of a call that must fail. */
export async function failureOf(call: Promise<unknown>): Promise<CniError> {
  const error = await call.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(CniError);
  return error as CniError;
}

export const cachedCount = async () => (await runner.cachedAttachments()).attachments.length;

/** A signal that fires when a plugin is called, as a deadline would: `tuning ADD`. */
export function until(call: string): { signal: AbortSignal } {
  const controller = new AbortController();
  const watch = async () => {
    while (!plugins.summary().includes(call)) await sleep(10);
    controller.abort(new DOMException('over', 'TimeoutError'));
  };
  void watch();
  return { signal: controller.signal };
}

export const first = { cniVersion: '1.0.0', interfaces: [{ name: 'net1', sandbox: liveNetns }], vendor: { a: 1 } };

export const second = { ...first, ips: [{ address: '10.1.2.3/24', interface: 0 }] };

/** A runner with other options in place of the first one. */
export async function replaceRunner(options: Parameters<typeof createRunner>[0]): Promise<void> {
  await runner[Symbol.asyncDispose]();
  runner = createRunner(options);
}

/** Makes plugins and a runner for each test of a file. */
export function useRunner(): void {
  beforeEach(() => {
    dir = tempDir();
    plugins = new ScriptPlugins(dir.path);
    logger = new RecordingLogger();
    runner = createRunner();
  });
  afterEach(async () => {
    await runner[Symbol.asyncDispose]();
    dir[Symbol.dispose]();
  });
}
