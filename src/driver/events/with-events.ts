import type { PluginHandlers } from '../../../nri/index.ts';
import type { DraPlugin } from '../../framework/kubeletplugin/index.ts';
import type { FailureEvents } from './failure-events.ts';

/** Wraps a driver: claims that it cannot serve get an event. */
export function withClaimEvents(plugin: DraPlugin, events: FailureEvents): DraPlugin {
  return {
    async prepareResourceClaims(claims, context) {
      try {
        const results = await plugin.prepareResourceClaims(claims, context);
        for (const claim of claims) {
          const result = results.get(claim.identity.uid);
          if (result !== undefined && 'error' in result) events.notPrepared(claim, result.error);
        }
        return results;
      } catch (error) {
        for (const claim of claims) events.notPrepared(claim, error);
        throw error;
      }
    },
    async unprepareResourceClaims(claims, context) {
      try {
        const results = await plugin.unprepareResourceClaims(claims, context);
        for (const claim of claims) {
          const error = results.get(claim.uid);
          if (error !== undefined) events.notUnprepared(claim, error);
        }
        return results;
      } catch (error) {
        for (const claim of claims) events.notUnprepared(claim, error);
        throw error;
      }
    },
  };
}

/** Wraps handlers: the events learn the names of pods, and a container that is refused gets an event. */
export function withPodEvents(handlers: PluginHandlers, events: FailureEvents): PluginHandlers {
  return {
    configure: async (runtime, config) => await handlers.configure?.(runtime, config),
    async synchronize(pods, containers) {
      events.sandboxesPresent(pods);
      await handlers.synchronize?.(pods, containers);
    },
    async runPodSandbox(pod, context) {
      events.sandboxSeen(pod);
      await handlers.runPodSandbox?.(pod, context);
    },
    stopPodSandbox: async (pod, context) => await handlers.stopPodSandbox?.(pod, context),
    async removePodSandbox(pod, context) {
      events.sandboxGone(pod);
      await handlers.removePodSandbox?.(pod, context);
    },
    async createContainer(pod, container, context) {
      try {
        await handlers.createContainer?.(pod, container, context);
      } catch (error) {
        events.containerRefused(pod, error);
        throw error;
      }
    },
  };
}
