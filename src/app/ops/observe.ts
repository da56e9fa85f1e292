import type { PluginHandlers } from '../../../nri/index.ts';
import type { NodeObserver } from '../../driver/ports.ts';
import type { MetadataCalls } from '../../driver/sandbox/index.ts';
import { failureOf } from '../../framework/kubeletplugin/driver-answers.ts';
import type { DraPlugin } from '../../framework/kubeletplugin/plugin.ts';
import type { Clock } from '../../lib/clock.ts';
import { NetdraError } from '../../lib/errors.ts';
import { intercept } from '../../lib/intercept.ts';
import type { Metrics } from './metrics.ts';
import type { Operations } from './operations.ts';

/** The label value for an error: our own codes are few, and all other errors count as one. */
function codeOf(error: unknown): string {
  for (let current = error; current instanceof Error; current = current.cause) {
    if (current instanceof NetdraError) return current.code;
  }
  return 'other';
}

/** Reads the clock at once, and at each call of the result. @returns seconds since */
function stopwatch(clock: Clock): () => number {
  const startedAtMs = clock.nowMs();
  return () => (clock.nowMs() - startedAtMs) / 1000;
}

/** Wraps a driver: its calls are timed and the claims that fail are counted. */
export function observePlugin(plugin: DraPlugin, metrics: Metrics, clock: Clock): DraPlugin {
  return intercept(plugin, async ({ name, next }) => {
    const operation = name === 'prepareResourceClaims' ? 'prepare' : 'unprepare';
    const seconds = stopwatch(clock);
    try {
      const results = await next();
      const errors = [...results.values()].map(failureOf).filter((error) => error !== undefined);
      metrics.claimsDone(operation, seconds(), errors.map(codeOf));
      return results;
    } catch (error) {
      metrics.claimsDone(operation, seconds(), [codeOf(error)]);
      throw error;
    }
  });
}

/** Wraps the calls: the writes of metadata are timed and counted. An update that changes nothing is not a write. */
export function observeFiles(files: MetadataCalls, metrics: Metrics, clock: Clock): MetadataCalls {
  return intercept(files, async ({ name, next }) => {
    if (name !== 'updateRequestMetadata' && name !== 'openGate') return await next();
    const seconds = stopwatch(clock);
    try {
      const result = await next();
      const updates = result instanceof Map ? [...result.values()] : [result];
      for (const { isWritten } of updates) if (isWritten) metrics.metadataWritten(seconds());
      return result;
    } catch (error) {
      metrics.metadataFailed('update', codeOf(error));
      throw error;
    }
  });
}

/** Handlers whose end no pod waits for. */
const untimed: readonly string[] = ['configure', 'synchronize', 'connected', 'disconnected'];

/** Wraps handlers: the events that a pod waits for are timed and their refusals counted. */
export function observeHandlers(handlers: PluginHandlers, metrics: Metrics, clock: Clock): PluginHandlers {
  const observe = async (name: string, handle: () => unknown) => {
    const seconds = stopwatch(clock);
    try {
      const result = await handle();
      metrics.hookDone(name, seconds());
      return result;
    } catch (error) {
      metrics.hookDone(name, seconds(), codeOf(error));
      throw error;
    }
  };
  return intercept(handlers, ({ name, next }) => (untimed.includes(name) ? next() : observe(name, next)));
}

/** Metrics and readiness of a node's driver. */
export function observerOf(
  ops: Pick<Operations, 'metrics' | 'setConnected' | 'setPublished'>,
  clock: Clock,
): Omit<NodeObserver, 'reported'> {
  const { metrics } = ops;
  return {
    plugin: (plugin) => observePlugin(plugin, metrics, clock),
    files: (files) => observeFiles(files, metrics, clock),
    handlers: (handlers) => observeHandlers(handlers, metrics, clock),
    connected: (peer, failure) => ops.setConnected(peer, failure),
    published: (failure) => ops.setPublished(failure),
    writeFailed: (object, error) => metrics.writeFailed(object, codeOf(error)),
    attached: (seconds) => metrics.attached(seconds),
    attachFailed: (error) => metrics.attachFailed(codeOf(error)),
    numaCompared: (result) => metrics.numaCompared(result),
    drifted: (setting, result) => metrics.drifted(setting, result),
    started: (facts) => metrics.readFrom(facts),
  };
}
