import { NriError } from '../../../nri/errors.ts';
import { feedSession } from '../nri-session.ts';
import type { FuzzTarget } from '../target.ts';
import { capturedTraffic, cutInPieces } from '../traffic.ts';

/** Any bytes on the socket that a runtime has. */
export const target: FuzzTarget = {
  name: 'nri-session',
  errors: [NriError],
  seeds() {
    const frames = capturedTraffic();
    return [Buffer.from('GET / HTTP/1.1\r\n\r\n'), ...frames, Buffer.concat(frames.slice(0, 6)), Buffer.concat(frames)];
  },
  run: (input) => feedSession(cutInPieces(input, 997)),
};
