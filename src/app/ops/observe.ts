import type { PluginHandlers } from '../../../nri/index.ts';
import type { NodeObserver } from '../../driver/composition/ports.ts';
import type { MetadataCalls } from '../../driver/sandbox/index.ts';
import { failureOf } from '../../framework/kubeletplugin/driver-answers.ts';
import type { DraPlugin } from '../../framework/kubeletplugin/plugin.ts';
import type { Clock } from '../../lib/clock.ts';
import { NetdraError } from '../../lib/errors.ts';
import { intercept } from '../../lib/intercept.ts';
import type { Metrics } from './metrics.ts';
import type { Operations } from './operations.ts';

/** Returns the label value for an error: its code if it is an error of netdra; all other errors share one value. */
function codeOf(error: unknown): string {
  for (let current = error; current instanceof Error; current = current.cause) {
    if (current instanceof NetdraError) return current.code;
  }
  return 'other';
}

/** Starts a stopwatch. @returns a function that returns the seconds since the start */
function stopwatch(clock: Clock): () => number {
  const startedAtMs = clock.nowMs();
  return () => (clock.nowMs() - startedAtMs) / 1000;
}

/** Wraps a driver: times its calls and counts failed claims. */
export function observePlugin(plugin: DraPlugin, { own }: Metrics, clock: Clock): DraPlugin {
  return intercept(plugin, async ({ name, next }) => {
    const operation = name === 'prepareResourceClaims' ? 'prepare' : 'unprepare';
    const seconds = stopwatch(clock);
    let errors: unknown[] = [];
    try {
      const results = await next();
      errors = [...results.values()].map(failureOf).filter((error) => error !== undefined);
      return results;
    } catch (error) {
      errors = [error];
      throw error;
    } finally {
      own.callSeconds.observe({ operation, result: errors.length === 0 ? 'ok' : 'error' }, seconds());
      for (const error of errors) own.claimErrors.inc({ operation, code: codeOf(error) });
    }
  });
}

/** Wraps the calls about metadata: times and counts writes. An update that changes nothing is not a write. */
export function observeFiles(files: MetadataCalls, { own }: Metrics, clock: Clock): MetadataCalls {
  return intercept(files, async ({ name, next }) => {
    if (name !== 'updateRequestMetadata') return await next();
    const seconds = stopwatch(clock);
    try {
      const result = await next();
      if (result.isWritten) {
        own.metadataWrites.inc();
        own.metadataWriteSeconds.observe(seconds());
      }
      return result;
    } catch (error) {
      own.metadataWriteErrors.inc({ error_type: codeOf(error) });
      own.metadataUpdateErrors.inc({ error_type: codeOf(error) });
      throw error;
    }
  });
}

/** Handlers for which no pod waits. */
const untimed: readonly string[] = ['configure', 'synchronize', 'connected', 'disconnected'];

/** Wraps handlers: times the events for which a pod waits, and counts refusals. */
export function observeHandlers(handlers: PluginHandlers, { own }: Metrics, clock: Clock): PluginHandlers {
  const observe = async (hook: string, handle: () => unknown) => {
    const seconds = stopwatch(clock);
    try {
      const result = await handle();
      own.hookSeconds.observe({ hook, result: 'ok' }, seconds());
      return result;
    } catch (error) {
      own.hookSeconds.observe({ hook, result: 'error' }, seconds());
      own.hookErrors.inc({ hook, code: codeOf(error) });
      throw error;
    }
  };
  return intercept(handlers, ({ name, next }) => (untimed.includes(name) ? next() : observe(name, next)));
}

/**
 * Returns labels that lead from an observation to the log lines and events of its pod. Returns no labels if the UID is longer
 * than an exemplar allows: the manifest of a static pod can choose any UID. Source: OpenMetrics, Exemplars: 128 characters.
 */
function exemplarOf(podUid: string): { pod_uid?: string } {
  return podUid.length <= 128 - 'pod_uid'.length ? { pod_uid: podUid } : {};
}

/** Returns the observer of the driver. It updates metrics and readiness. */
export function observerOf(ops: Operations, clock: Clock): Omit<NodeObserver, 'reported'> {
  const { metrics } = ops;
  const { own } = metrics;
  return {
    plugin: (plugin) => observePlugin(plugin, metrics, clock),
    files: (files) => observeFiles(files, metrics, clock),
    handlers: (handlers) => observeHandlers(handlers, metrics, clock),
    connected: (peer, failure) => ops.setConnected(peer, failure),
    published: (failure) => ops.setPublished(failure),
    metadataFailed: (error) => own.metadataWriteErrors.inc({ error_type: codeOf(error) }),
    writeFailed: (object, error) => own.apiWriteErrors.inc({ object, code: codeOf(error) }),
    waited: (podUid, result, times) => {
      const exemplarLabels = exemplarOf(podUid);
      for (const [phase, ms] of Object.entries(times)) {
        own.attachSeconds.observe({ labels: { result, phase }, value: ms / 1_000, exemplarLabels });
      }
    },
    attachFailed: (error) => own.attachErrors.inc({ code: codeOf(error) }),
    numaCompared: (result) => own.numaContainers.inc({ result }),
    drifted: (setting, result) => own.drifts.inc({ setting, result }),
    started: (facts) => metrics.readFrom(facts),
  };
}
