import { isDeepStrictEqual } from 'node:util';
import type { ServerWritableStream } from '@grpc/grpc-js';
import { onAbort } from '../../lib/abort.ts';
import { type Clock, resolvesWithin } from '../../lib/clock.ts';
import type { Logger } from '../../lib/logger.ts';
import { lazyService } from '../../lib/proto.ts';
import type { HealthBoard, WireDeviceHealth } from './health.ts';

type HealthStream = ServerWritableStream<object, { devices: WireDeviceHealth[] }>;

/** Versions of the health service, preferred first; their messages are the same. */
export const healthVersions = ['v1', 'v1alpha1'] as const;
export type HealthVersion = (typeof healthVersions)[number];

interface HealthServiceOptions {
  board: HealthBoard;
  clock: Clock;
  /** Signal whose abort ends all streams. */
  signal: AbortSignal;
  logger: Logger;
  protoDir?: string | undefined;
}

/** Creates the gRPC service of one version and its handler. Source: kubelet dra-health. */
export function createHealthService(version: HealthVersion, options: HealthServiceOptions) {
  const service = `${version}.DRAResourceHealth`;
  const methods = { NodeWatchResources: { streams: true } };
  const { definition } = lazyService(`dra-health-${version}.proto`, service, methods, options.protoDir);
  const serve = (stream: HealthStream) =>
    void watch(stream, options).catch((err: unknown) => {
      options.logger.error({ err }, 'sending device health to the kubelet failed');
      stream.end();
    });
  return { definition, handlers: { NodeWatchResources: serve } };
}

/**
 * Sends the complete list when the stream opens, at each report of the driver, and when a report expires. Nothing is repeated
 * in between: the kubelet of 1.37 dates a health by the time of receipt, so that the devices of a hung monitor would stay
 * healthy. A kubelet that reads slowly gets only the newest list.
 */
async function watch(stream: HealthStream, { board, clock, signal }: HealthServiceOptions): Promise<void> {
  using stack = new DisposableStack();
  let wake = Promise.withResolvers<void>();
  const rouse = () => wake.resolve();
  let isOpen = true;
  let isNew = true;
  let sent: WireDeviceHealth[] | undefined;
  const close = () => {
    isOpen = false;
    rouse();
  };
  for (const event of ['cancelled', 'close', 'error']) stream.once(event, close);
  stream.on('drain', rouse);
  stack.use(onAbort(signal, close));
  stack.use(
    board.onChange(() => {
      isNew = true;
      rouse();
    }),
  );
  while (isOpen) {
    wake = Promise.withResolvers();
    if (isNew && !stream.writableNeedDrain) {
      sent = board.snapshot();
      if (sent !== undefined) stream.write({ devices: sent });
      isNew = false;
    }
    const leftMs = board.expiresInMs();
    if (leftMs === undefined) await wake.promise;
    // If the time of day was corrected, a report can still be valid when the timer fires.
    else if (!(await resolvesWithin(clock, leftMs, wake.promise))) isNew ||= !isDeepStrictEqual(board.snapshot(), sent);
  }
  stream.end();
}
