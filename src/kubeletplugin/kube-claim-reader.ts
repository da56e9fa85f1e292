import { type KubeConfig, type RequestContext, ResourceV1Api } from '@kubernetes/client-node';
import type { ClaimReader } from './claims.ts';

/** Reads claims through the API client, resource.k8s.io/v1. No cache: what the API server says now is what counts. */
export function createKubeClaimReader(config: KubeConfig): ClaimReader {
  const api = config.makeApiClient(ResourceV1Api);
  return {
    readClaim: (namespace, name, signal) =>
      api.readNamespacedResourceClaim({ namespace, name }, { middleware: [withSignal(signal)] as never }),
  };
}

/** The generated client takes a signal only through the request's context. */
function withSignal(signal: AbortSignal) {
  return {
    async pre(context: RequestContext) {
      context.setSignal(signal);
      return context;
    },
    post: async <T>(context: T) => context,
  };
}
