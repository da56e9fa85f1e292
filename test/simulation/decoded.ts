import { formatContainer, parseContainer } from '../../nri/container.ts';
import { createTrim } from '../../nri/decoded-fields.ts';
import type { Container, DecodeOptions, PluginHandlers, PodSandbox } from '../../nri/index.ts';
import { formatPodSandbox, parsePodSandbox } from '../../nri/pod.ts';
import { createNriCodec } from '../../nri/wire.ts';

const { synchronizeRequest } = createNriCodec();

/** Returns handlers whose containers went over the wire: they have only what the driver decodes. */
export function decoding(handlers: PluginHandlers, decode: DecodeOptions): PluginHandlers {
  const trim = createTrim(decode, { pod: 1, container: 2 });
  const received = (pods: readonly PodSandbox[], containers: readonly Container[]) => {
    const sent = { pods: pods.map(formatPodSandbox), containers: containers.map(formatContainer) };
    const decoded = synchronizeRequest.decode(trim(synchronizeRequest.encode(sent)));
    return {
      pods: (decoded.pods ?? []).map(parsePodSandbox),
      containers: (decoded.containers ?? []).map(parseContainer),
    };
  };
  return {
    ...handlers,
    synchronize(pods, containers, context) {
      const listed = received(pods, containers);
      return handlers.synchronize?.(listed.pods, listed.containers, context);
    },
    createContainer(pod, container, context) {
      return handlers.createContainer?.(pod, received([pod], [container]).containers[0]!, context);
    },
  };
}
