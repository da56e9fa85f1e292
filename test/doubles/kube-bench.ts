import { expect } from 'vitest';
import { ApiServer, type ApiServerOptions } from './api-server.ts';
import { openKube } from './kube.ts';
import { RecordingLogger } from './logger.ts';
import { ManualClock } from './manual-clock.ts';

/** An API server with clients of it, a clock that stands still and a logger. It disposes of what is put on its stack, too. */
export async function startKubeBench(options: ApiServerOptions = {}) {
  const stack = new AsyncDisposableStack();
  const api = stack.use(await ApiServer.start(options));
  const { client, resources } = stack.use(openKube(api));
  return {
    api,
    client,
    resources,
    clock: new ManualClock(),
    logger: new RecordingLogger(),
    stack,
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}

/** Waits for something with patience: the machine may be busy. */
export function poll<T>(what: () => T) {
  return expect.poll(() => what(), { timeout: 10_000, interval: 5 });
}
