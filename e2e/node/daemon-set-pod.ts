import { existsSync, mkdirSync } from 'node:fs';
import { isAbsolute } from 'node:path';
import type { V1Container, V1DaemonSet, V1EnvVar, V1HostPathVolumeSource, V1PodSpec } from '@kubernetes/client-node';
import type { ContainerConfig, LinuxContainerSecurityContext } from './cri.ts';

/** What the downward API knows of a pod. */
export interface PodFacts {
  'spec.nodeName': string;
  'metadata.uid': string;
}

// What the kubelet tells the runtime of containers that are not privileged. Source: Kubernetes' defaults of procMount.
const maskedPaths = ['/proc/asound', '/proc/acpi', '/proc/kcore', '/proc/keys', '/proc/latency_stats', '/proc/timer_list', '/proc/timer_stats', '/proc/sched_debug', '/proc/scsi', '/sys/firmware', '/sys/devices/virtual/powercap']; // biome-ignore format: a list
const readonlyPaths = ['/proc/bus', '/proc/fs', '/proc/irq', '/proc/sys', '/proc/sysrq-trigger'];

/**
 * The one container of a DaemonSet as the kubelet asks the runtime for it. Fields that this does not know are refused:
 * what is shown with it is shown of everything that the manifest says. Not handed on: resources, probes, and SELinux.
 */
export function toContainerConfig(daemonSet: V1DaemonSet, facts: PodFacts): ContainerConfig {
  const pod = daemonSet.spec?.template.spec;
  const [container, ...more] = pod?.containers ?? [];
  if (pod === undefined || container === undefined || more.length > 0) throw new Error('one container is expected');
  const { name, args = [], env = [], image = '' } = container;
  return {
    metadata: { name, attempt: 0 },
    image: { image },
    args,
    envs: env.map((each) => toVariable(each, facts)),
    mounts: toMounts(pod, container),
    linux: { securityContext: toSecurityContext(pod, container) },
    logPath: `${name}.log`,
  };
}

function toVariable({ name, value, valueFrom }: V1EnvVar, facts: PodFacts): { key: string; value: string } {
  const path = valueFrom?.fieldRef?.fieldPath;
  const known = value ?? facts[path as keyof PodFacts];
  if (known === undefined) throw new Error(`no value for ${name} (${path})`);
  return { key: name, value: known };
}

function toMounts(pod: V1PodSpec, container: V1Container): NonNullable<ContainerConfig['mounts']> {
  return (container.volumeMounts ?? []).map(({ name, mountPath, readOnly = false, mountPropagation, ...rest }) => {
    const source = pod.volumes?.find((volume) => volume.name === name)?.hostPath;
    if (source === undefined || Object.keys(rest).length > 0) throw new Error(`mount ${name} is not understood`);
    makeHostPath(source);
    const propagation = mountPropagation === 'HostToContainer' ? ('PROPAGATION_HOST_TO_CONTAINER' as const) : undefined;
    if (mountPropagation !== undefined && propagation === undefined) throw new Error(`${mountPropagation}?`);
    const mount = { containerPath: mountPath, hostPath: source.path, readonly: readOnly };
    return propagation === undefined ? mount : { ...mount, propagation };
  });
}

function makeHostPath({ path, type }: V1HostPathVolumeSource): void {
  if (type === 'DirectoryOrCreate') mkdirSync(path, { recursive: true, mode: 0o755 });
  else if (type !== 'Directory') throw new Error(`host path ${path}: type ${type} is not understood`);
  if (!isAbsolute(path) || !existsSync(path)) throw new Error(`host path ${path} is not there`);
}

function toSecurityContext(pod: V1PodSpec, container: V1Container): LinuxContainerSecurityContext {
  const { runAsUser, allowPrivilegeEscalation, readOnlyRootFilesystem, seccompProfile, appArmorProfile, capabilities, ...rest } =
    container.securityContext ?? {}; // biome-ignore format: one list
  if (Object.keys(rest).length > 0) throw new Error(`securityContext: ${Object.keys(rest)} is not understood`);
  if (seccompProfile?.type !== 'RuntimeDefault') throw new Error('seccomp: RuntimeDefault is expected');
  if (appArmorProfile?.type !== 'Unconfined') throw new Error('AppArmor: Unconfined is expected');
  return {
    capabilities: { addCapabilities: capabilities?.add ?? [], dropCapabilities: capabilities?.drop ?? [] },
    namespaceOptions: { network: pod.hostNetwork ? 'NODE' : 'POD', pid: pod.hostPID ? 'NODE' : 'CONTAINER' },
    ...(runAsUser === undefined ? {} : { runAsUser: { value: runAsUser } }),
    readonlyRootfs: readOnlyRootFilesystem ?? false,
    noNewPrivs: allowPrivilegeEscalation === false,
    maskedPaths,
    readonlyPaths,
    seccomp: { profileType: 'RuntimeDefault' },
    apparmor: { profileType: 'Unconfined' },
  };
}
