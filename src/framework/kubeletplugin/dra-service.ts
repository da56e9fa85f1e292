import { type ServerUnaryCall, type ServiceError, type sendUnaryData, status } from '@grpc/grpc-js';
import { explain } from '../../lib/errors.ts';
import { lazyService } from '../../lib/proto.ts';
import type { ClaimIdentity } from '../metadata/index.ts';
import type { PluginCalls } from './plugin-calls.ts';

/** A device in the answer to the kubelet; names as on the wire. */
export interface WireDevice {
  requestNames: string[];
  poolName: string;
  deviceName: string;
  cdiDeviceIds: string[];
  shareId?: string;
}

export interface CallContext {
  /** Time that the caller waits for the answer, ms; `Infinity` if it sets no timeout. */
  timeoutMs: number;
  /** Aborts when the caller cancels the call or disconnects. */
  signal: AbortSignal;
}

type DraCalls = Pick<PluginCalls, 'nodePrepareResources' | 'nodeUnprepareResources'>;

interface ClaimsRequest {
  claims: ClaimIdentity[];
}

/** DRA service versions, preferred first, by the names under which they are registered with the kubelet. */
export const draVersions = ['v1', 'v1beta1'] as const;
export type DraVersion = (typeof draVersions)[number];

/**
 * Creates the gRPC service of one version and its handlers. On the wire the versions differ only in `share_id`, which v1beta1
 * lacks.
 */
export function createDraService(version: DraVersion, calls: DraCalls, protoDir?: string) {
  const service = `k8s.io.kubelet.pkg.apis.dra.${version}.DRAPlugin`;
  return {
    ...lazyService(
      `dra-${version}.proto`,
      service,
      { NodePrepareResources: { streams: false }, NodeUnprepareResources: { streams: false } },
      protoDir,
    ),
    handlers: {
      NodePrepareResources: unary(({ claims }, context) => calls.nodePrepareResources(claims, context)),
      NodeUnprepareResources: unary(({ claims }, context) => calls.nodeUnprepareResources(claims, context)),
    },
  };
}

function unary<T>(handle: (request: ClaimsRequest, context: CallContext) => Promise<Map<string, T>>) {
  return (call: ServerUnaryCall<ClaimsRequest, unknown>, callback: sendUnaryData<unknown>) => {
    const gone = new AbortController();
    call.on('cancelled', () => gone.abort(new Error('the caller has gone')));
    const timeoutMs = Math.max(0, Number(call.getDeadline()) - Date.now());
    handle(call.request, { timeoutMs, signal: gone.signal }).then(
      (claims) => callback(null, { claims: Object.fromEntries(claims) }),
      // Go's gRPC converts a plain error to Unknown, which the kubelet logs for the Go helper.
      (error) => callback({ code: status.UNKNOWN, details: explain(error) } as ServiceError),
    );
  };
}
