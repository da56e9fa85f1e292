import type { PluginHandlers } from '../../../nri/index.ts';
import { failureOf } from '../../framework/kubeletplugin/driver-answers.ts';
import type { DraPlugin, PrepareResult, UnprepareResult } from '../../framework/kubeletplugin/plugin.ts';
import { intercept } from '../../lib/intercept.ts';
import type { FailureEvents } from './failure-events.ts';

/** Returns the plugin with reports: claims that it cannot prepare or unprepare are reported as events. */
export function withClaimEvents(plugin: DraPlugin, events: FailureEvents): DraPlugin {
  return {
    prepareResourceClaims: async (claims, context) =>
      await reporting(
        () => plugin.prepareResourceClaims(claims, context),
        new Map(claims.map((claim) => [claim.identity.uid, (error: unknown) => events.notPrepared(claim, error)])),
      ),
    unprepareResourceClaims: async (claims, context) =>
      await reporting(
        () => plugin.unprepareResourceClaims(claims, context),
        new Map(claims.map((claim) => [claim.uid, (error: unknown) => events.notUnprepared(claim, error)])),
      ),
  };
}

/**
 * Calls a plugin and reports the claims that have failed. @param reports functions that report a claim's error, by UID of the
 * claim
 */
async function reporting<Result extends PrepareResult | UnprepareResult>(
  call: () => Promise<ReadonlyMap<string, Result>>,
  reports: ReadonlyMap<string, (error: unknown) => void>,
): Promise<ReadonlyMap<string, Result>> {
  try {
    const results = await call();
    for (const [uid, report] of reports) {
      const error = failureOf(results.get(uid));
      if (error !== undefined) report(error);
    }
    return results;
  } catch (error) {
    for (const report of reports.values()) report(error);
    throw error;
  }
}

async function refusing<T>(call: () => T, report: (error: unknown) => void): Promise<Awaited<T>> {
  try {
    return await call();
  } catch (error) {
    report(error);
    throw error;
  }
}

/** Returns the handlers with reports: records the names of pods, and reports a refused container as an event. */
export function withPodEvents(handlers: PluginHandlers, events: FailureEvents): PluginHandlers {
  return intercept(handlers, ({ name, args, next }) => {
    if (name === 'synchronize') events.sandboxesPresent(args[0]);
    if (name === 'runPodSandbox') events.sandboxSeen(args[0]);
    if (name === 'removePodSandbox') events.sandboxGone(args[0]);
    if (name !== 'createContainer') return next();
    return refusing(next, (error) => events.containerRefused(args[0], error));
  });
}
