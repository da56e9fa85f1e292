import type { CallOptions, CriClient } from './cri.ts';

/**
 * Stops and removes a sandbox in the kubelet's order: its containers are removed before it. Otherwise containerd (seen on
 * 2.1.9) takes its lock against plugin registration a second time for each container, and deadlocks if a plugin
 * registers in between.
 * @throws CriError
 */
export async function endSandbox(cri: CriClient, podSandboxId: string, options: CallOptions = {}): Promise<void> {
  await cri.call('StopPodSandbox', { podSandboxId }, options);
  const { containers } = await cri.call('ListContainers', {}, options);
  for (const { id } of containers.filter((container) => container.podSandboxId === podSandboxId)) {
    await cri.call('RemoveContainer', { containerId: id }, options);
  }
  await cri.call('RemovePodSandbox', { podSandboxId }, options);
}
