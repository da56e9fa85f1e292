import { NriError } from '../../../nri/errors.ts';
import { feedSession } from '../nri-session.ts';
import type { FuzzTarget } from '../target.ts';
import { capturedTraffic, cutInPieces } from '../traffic.ts';

/** Any bytes on the socket that a runtime has. */
export const target: FuzzTarget = {
  name: 'nri-session',
  errors: [NriError],
  isSlow: true,
  covers: ['nri/session.ts', 'nri/mux/mux.ts', 'nri/ttrpc/server.ts', 'nri/ttrpc/client.ts'],
  maxBytes: 16_384,
  seeds() {
    const frames = capturedTraffic();
    return [Buffer.from('GET / HTTP/1.1\r\n\r\n'), ...frames, Buffer.concat(frames.slice(0, 6)), Buffer.concat(frames)];
  },
  run: (input) => feedSession(cutInPieces(input, 997)),
};
