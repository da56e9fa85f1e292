import { NriError } from '../../../nri/errors.ts';
import { encodeMuxHeader } from '../../../nri/mux/frame.ts';
import { encodeTtrpcFrame } from '../../../nri/ttrpc/frame.ts';
import { pluginService } from '../../../nri/wire.ts';
import { feedSession, nri, ttrpc } from '../nri-session.ts';
import type { FuzzTarget } from '../target.ts';

const methods = [
  'Configure',
  'Synchronize',
  'RunPodSandbox',
  'StopPodSandbox',
  'CreateContainer',
  'StateChange',
  'Shutdown',
  'constructor',
];
const stepBytes = 6;
const timeoutsNano = [0, 1, 2_000_000_000, -1, 2 ** 53];

/**
 * Steps of one connection, well framed so that the content of frames is reached. A step is: method, frame type and
 * connection, distance of the stream id, timeout, length of the payload (2 bytes), payload.
 */
function* readSteps(input: Uint8Array): Generator<Buffer> {
  let streamId = -1;
  for (let at = 0; at + stepBytes <= input.length; ) {
    const [method = 0, kind = 0, distance = 0, timeout = 0, high = 0, low = 0] = input.subarray(at, at + stepBytes);
    const end = at + stepBytes + 256 * high + low;
    const payload = input.subarray(at + stepBytes, end);
    at = end;
    streamId = (streamId + (distance % 8) + (distance === 255 ? 2 ** 31 : 0)) >>> 0;
    const data = ttrpc.request.encode({
      service: method === 255 ? 'other' : pluginService,
      method: methods[method % methods.length]!,
      payload,
      timeoutNano: timeoutsNano[timeout % timeoutsNano.length]!,
    });
    const frame = encodeTtrpcFrame({ streamId, type: 1 + (kind % 4), flags: kind >> 6, data });
    // Mostly to the plugin's side, sometimes to the side on which it sends requests.
    yield Buffer.concat([encodeMuxHeader(kind >= 32 && kind < 64 ? 2 : 1, frame.length), frame]);
  }
}

function step(method: string, payload: Buffer): Buffer {
  const head = [methods.indexOf(method), 0, 2, 2, payload.length >> 8, payload.length & 0xff];
  return Buffer.concat([Buffer.from(head), payload]);
}

const namespace = { type: 'network', path: '/run/netns/a' };
const pod = { id: 's1', uid: 'u1', name: 'app', namespace: 'default', linux: { namespaces: [namespace] } };
const container = { id: 'c1', podSandboxId: 's1', name: 'main', state: 3 };

export const target: FuzzTarget = {
  name: 'nri-calls',
  errors: [NriError],
  seeds() {
    const configure = step(
      'Configure',
      nri.configureRequest.encode({ runtimeName: 'containerd', requestTimeout: 2000 }),
    );
    const sync = (more: boolean) =>
      step('Synchronize', nri.synchronizeRequest.encode({ pods: [pod], containers: [container], more }));
    const run = step('RunPodSandbox', nri.podSandboxRequest.encode({ pod }));
    const change = step('StateChange', nri.stateChangeEvent.encode({ event: 1, pod, container }));
    const create = step('CreateContainer', nri.containerRequest.encode({ pod, container }));
    return [
      Buffer.concat([configure, sync(false), run, change, create]),
      Buffer.concat([configure, sync(true), sync(true), sync(false), step('Shutdown', Buffer.alloc(0))]),
      run,
      Buffer.concat([change, run, run]),
      // 10,000 empty pods.
      step('Synchronize', Buffer.alloc(20_000, Buffer.from([0x0a, 0x00]))),
    ];
  },
  run: (input) => feedSession([...readSteps(input)]),
};
