import { type KubeConfig, Observable, type ObservableMiddleware, ResourceV1Api } from '@kubernetes/client-node';
import type { ClaimReader } from './claims.ts';

/** Reads claims through the API client, resource.k8s.io/v1. No cache: what the API server says now is what counts. */
export function createKubeClaimReader(config: KubeConfig): ClaimReader {
  const api = config.makeApiClient(ResourceV1Api);
  return {
    readClaim: (namespace, name, signal) =>
      api.readNamespacedResourceClaim({ namespace, name }, { middleware: [withSignal(signal)] }),
  };
}

/** The generated client takes a signal only through the request's context. */
function withSignal(signal: AbortSignal): ObservableMiddleware {
  return {
    pre(context) {
      context.setSignal(signal);
      return new Observable(Promise.resolve(context));
    },
    post: (context) => new Observable(Promise.resolve(context)),
  };
}
