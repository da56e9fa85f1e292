import fc from 'fast-check';
import { NriError } from '../../../nri/errors.ts';
import { encodeMuxHeader } from '../../../nri/mux/frame.ts';
import { encodeTtrpcFrame, FrameType } from '../../../nri/ttrpc/frame.ts';
import { pluginService } from '../../../nri/wire.ts';
import { feedSession, ttrpc } from '../nri-session.ts';
import type { FuzzTarget } from '../target.ts';
import { capturedTraffic, cutInPieces } from '../traffic.ts';

const bytes = (maxLength: number) => fc.uint8Array({ maxLength });
const inMux = (payload: Uint8Array, connectionId: number) =>
  Buffer.concat([encodeMuxHeader(connectionId, payload.length), payload]);
const connectionId = fc.constantFrom(0, 1, 1, 1, 2, 2, 3);

const framedNoise = fc.tuple(bytes(60), connectionId).map(([payload, id]) => inMux(payload, id));
const ttrpcNoise = fc
  .tuple(fc.nat(12), fc.nat(5), fc.nat(4), bytes(60), connectionId)
  .map(([streamId, type, flags, data, id]) => inMux(encodeTtrpcFrame({ streamId, type, flags, data }), id));
const methods = ['Configure', 'Synchronize', 'RunPodSandbox', 'StateChange', 'Shutdown', 'constructor', ''];
const callNoise = fc
  .tuple(fc.nat(30), fc.constantFrom(...methods), bytes(60), fc.integer({ min: -5, max: 5_000_000 }))
  .map(([streamId, method, payload, timeoutNano]) => {
    const data = ttrpc.request.encode({ service: pluginService, method, payload, timeoutNano });
    return inMux(encodeTtrpcFrame({ streamId, type: FrameType.request, data }), 1);
  });

/** Any bytes on the runtime's socket. */
export const target: FuzzTarget = {
  name: 'nri-session',
  errors: [NriError],
  generated: fc
    .array(fc.oneof(framedNoise, ttrpcNoise, callNoise, fc.constantFrom(...capturedTraffic()), bytes(100)), {
      maxLength: 12,
    })
    .map((messages) => Buffer.concat(messages)),
  seeds() {
    const frames = capturedTraffic();
    return [...frames, Buffer.concat(frames.slice(0, 6)), Buffer.concat(frames)];
  },
  run: (input) => feedSession(cutInPieces(input, 997)),
};
