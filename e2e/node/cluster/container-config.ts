import { join } from 'node:path';
import type { V1Container, V1PodSpec } from '@kubernetes/client-node';
import type { ContainerConfig } from '../cri.ts';

/** What of a container's specification is understood; the rest is refused, so that nothing is shown of it. */
const knownFields: (keyof V1Container)[] = ['name', 'image', 'imagePullPolicy', 'command', 'args', 'resources', 'securityContext', 'volumeMounts']; // biome-ignore format: a list
const knownSecurity = ['capabilities', 'seLinuxOptions'];

/**
 * A container as the kubelet asks the runtime for it. Not handed on: SELinux, and resources but claims.
 * @throws Error for what is not understood
 */
export function toContainerConfig(pod: V1PodSpec, container: V1Container, cdiDevices: string[]): ContainerConfig {
  refuseUnknown(`container ${container.name}`, container, knownFields);
  const { name, image = '', command, args, volumeMounts = [], securityContext = {} } = container;
  refuseUnknown(`securityContext of ${name}`, securityContext, knownSecurity);
  const { add: addCapabilities = [], drop: dropCapabilities = [] } = securityContext.capabilities ?? {};
  return {
    metadata: { name, attempt: 0 },
    image: { image },
    ...(command === undefined ? {} : { command }),
    ...(args === undefined ? {} : { args }),
    mounts: volumeMounts.map(({ name: volume, mountPath }) => ({
      containerPath: mountPath,
      hostPath: hostPathOf(pod, volume),
    })),
    linux: {
      securityContext: {
        capabilities: { addCapabilities, dropCapabilities },
        namespaceOptions: { network: pod.hostNetwork ? 'NODE' : 'POD', pid: 'CONTAINER' },
      },
    },
    logPath: `${name}.log`,
    CDIDevices: cdiDevices.map((device) => ({ name: device })),
  };
}

function hostPathOf({ volumes = [] }: V1PodSpec, name: string): string {
  const path = volumes.find((volume) => volume.name === name)?.hostPath?.path;
  if (path === undefined) throw new Error(`volume ${name} is no path of the node: not understood`);
  return path;
}

function refuseUnknown(what: string, object: object, known: readonly string[]): void {
  const unknown = Object.keys(object).filter((field) => !known.includes(field));
  if (unknown.length > 0) throw new Error(`${what}: ${unknown.join(', ')} is not understood`);
}

/** Takes time, stream and tag off the lines of a container's log. Source: Kubernetes' log format. */
export function parseContainerLog(text: string): string {
  const lines = text.split('\n').filter((line) => line !== '');
  return lines
    .map((line) => {
      const [, , tag, ...words] = line.split(' ');
      return `${words.join(' ')}${tag === 'F' ? '\n' : ''}`;
    })
    .join('');
}

/** Where the runtime writes the log of a container. */
export function containerLogPath(logDirectory: string, container: string): string {
  return join(logDirectory, `${container}.log`);
}
