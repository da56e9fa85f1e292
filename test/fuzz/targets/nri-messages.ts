import { isDeepStrictEqual } from 'node:util';
import { formatContainer, parseContainer } from '../../../nri/container.ts';
import { NriError } from '../../../nri/errors.ts';
import { formatPodSandbox, parsePodSandbox } from '../../../nri/pod.ts';
import type { MessageCodec } from '../../../nri/proto.ts';
import { parseRuntimeInfo } from '../../../nri/runtime-info.ts';
import { createTtrpcCodec } from '../../../nri/ttrpc/codec.ts';
import { createNriCodec } from '../../../nri/wire.ts';
import { expectThat, type FuzzTarget } from '../target.ts';
import { capturedMessages } from '../traffic.ts';

const nri = createNriCodec();
const ttrpc = createTtrpcCodec();

/** The plugin's processing of each decoded message. */
const readers: readonly ((bytes: Buffer) => void)[] = [
  (bytes) => roundTrip(ttrpc.request, bytes),
  (bytes) => roundTrip(ttrpc.response, bytes),
  (bytes) => parseRuntimeInfo(roundTrip(nri.configureRequest, bytes)),
  (bytes) => {
    const { pods = [], containers = [] } = roundTrip(nri.synchronizeRequest, bytes);
    for (const pod of pods) formatPodSandbox(parsePodSandbox(pod));
    for (const container of containers) formatContainer(parseContainer(container));
  },
  (bytes) => {
    const { pod } = roundTrip(nri.podSandboxRequest, bytes);
    if (pod !== undefined) formatPodSandbox(parsePodSandbox(pod));
  },
  (bytes) => {
    const { pod, container } = roundTrip(nri.stateChangeEvent, bytes);
    if (pod !== undefined) parsePodSandbox(pod);
    if (container !== undefined) parseContainer(container);
  },
];

function roundTrip<T>(codec: MessageCodec<T>, bytes: Buffer): T {
  const message = codec.decode(bytes);
  // Twice: bad UTF-8 and numbers beyond 2^53 change the first time, but never again.
  const second = codec.decode(codec.encode(message));
  const third = codec.decode(codec.encode(second));
  expectThat(isDeepStrictEqual(second, third), 'a message changes each time that it is encoded and decoded');
  return message;
}

/** The first byte selects the message. */
export const target: FuzzTarget = {
  name: 'nri-messages',
  errors: [NriError],
  dictionary: ['__proto__', 'constructor', '\n\0', '\n\n\n\b__proto__', '\xc3\x28'],
  seeds() {
    const payloads = capturedMessages().flatMap(({ type, data }) => {
      const { payload } = (type === 1 ? ttrpc.request : ttrpc.response).decode(data);
      return payload === undefined ? [data] : [data, Buffer.from(payload)];
    });
    return payloads.flatMap((payload) => readers.map((_, index) => Buffer.concat([Buffer.of(index), payload])));
  },
  run(input) {
    const [kind = 0, ...rest] = input;
    readers[kind % readers.length]!(Buffer.from(rest));
  },
};
