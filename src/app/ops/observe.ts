import type { PluginHandlers } from '../../../nri/index.ts';
import type { MetadataFiles } from '../../driver/sandbox/index.ts';
import type { DraPlugin } from '../../framework/kubeletplugin/index.ts';
import type { Clock } from '../../lib/clock.ts';
import { NetdraError } from '../../lib/errors.ts';
import type { Metrics } from './metrics.ts';

/** The label value for an error: our own codes are few, and all other errors count as one. */
function codeOf(error: unknown): string {
  for (let current = error; current instanceof Error; current = current.cause) {
    if (current instanceof NetdraError) return current.code;
  }
  return 'other';
}

/** Wraps a driver: its calls are timed and the claims that fail are counted. */
export function observePlugin(plugin: DraPlugin, metrics: Metrics, clock: Clock): DraPlugin {
  const timed = async <T>(
    operation: 'prepare' | 'unprepare',
    run: () => Promise<ReadonlyMap<string, T>>,
    errorOf: (result: T) => Error | undefined,
  ) => {
    const startedAtMs = clock.nowMs();
    const seconds = () => (clock.nowMs() - startedAtMs) / 1000;
    try {
      const results = await run();
      const errors = [...results.values()].map(errorOf).filter((error) => error !== undefined);
      metrics.claimsDone(operation, seconds(), errors.map(codeOf));
      return results;
    } catch (error) {
      metrics.claimsDone(operation, seconds(), [codeOf(error)]);
      throw error;
    }
  };
  return {
    prepareResourceClaims: (claims, context) =>
      timed(
        'prepare',
        () => plugin.prepareResourceClaims(claims, context),
        (result) => ('error' in result ? result.error : undefined),
      ),
    unprepareResourceClaims: (claims, context) =>
      timed(
        'unprepare',
        () => plugin.unprepareResourceClaims(claims, context),
        (error) => error,
      ),
  };
}

/** Wraps the calls: the writes of metadata are timed and counted. An update that changes nothing is not a write. */
export function observeFiles(files: MetadataFiles, metrics: Metrics, clock: Clock): MetadataFiles {
  return {
    async updateRequestMetadata(claim, request, devices) {
      const startedAtMs = clock.nowMs();
      try {
        const update = await files.updateRequestMetadata(claim, request, devices);
        if (update.isWritten) metrics.metadataWritten((clock.nowMs() - startedAtMs) / 1000);
        return update;
      } catch (error) {
        metrics.metadataFailed('update');
        throw error;
      }
    },
    withdrawMetadata: (claim, requests) => files.withdrawMetadata(claim, requests),
    openGate: (claim, sandboxId) => files.openGate(claim, sandboxId),
    holdGate: (claim, sandboxId, reason) => files.holdGate(claim, sandboxId, reason),
    endGate: (claim, sandboxId) => files.endGate(claim, sandboxId),
  };
}

const hooks = ['runPodSandbox', 'stopPodSandbox', 'removePodSandbox', 'createContainer'] as const;

/**
 * Wraps handlers: the events that a pod waits for are timed and their refusals counted. Handlers may be on the
 * prototype of a class.
 */
export function observeHandlers(handlers: PluginHandlers, metrics: Metrics, clock: Clock): PluginHandlers {
  const observe = <Call extends unknown[]>(hook: string, handle: (...call: Call) => void | Promise<void>) => {
    return async (...call: Call) => {
      const startedAtMs = clock.nowMs();
      const seconds = () => (clock.nowMs() - startedAtMs) / 1000;
      try {
        await handle.apply(handlers, call);
        metrics.hookDone(hook, seconds());
      } catch (error) {
        metrics.hookDone(hook, seconds(), codeOf(error));
        throw error;
      }
    };
  };
  const { configure, synchronize } = handlers;
  const observed = hooks.flatMap((hook) => {
    const handle = handlers[hook] as ((...call: unknown[]) => void | Promise<void>) | undefined;
    return handle === undefined ? [] : [[hook, observe(hook, handle)]];
  });
  return {
    ...(configure && { configure: configure.bind(handlers) }),
    ...(synchronize && { synchronize: synchronize.bind(handlers) }),
    ...Object.fromEntries(observed),
  };
}
