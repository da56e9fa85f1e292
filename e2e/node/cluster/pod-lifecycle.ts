import { readFileSync } from 'node:fs';
import type { V1Container, V1ContainerStatus, V1Pod } from '@kubernetes/client-node';
import { systemClock } from '../../../src/clock.ts';
import { explain } from '../../../src/errors.ts';
import type { Identified } from '../../../test/doubles/objects.ts';
import type { Bench } from '../bench.ts';
import { exec, type Sandbox } from '../pod.ts';
import type { Claims } from './claims.ts';
import { containerLogPath, parseContainerLog, toContainerConfig } from './container-config.ts';

type Pod = Identified<V1Pod>;

const pollMs = 50;
/** The kubelet waits longer; its order of doing things is what counts here. */
const retryMs = 500;

/** One pod on the node, from the API server to the runtime and back: the kubelet's sync loop, with the scheduler's part. */
export class PodLifecycle {
  readonly #bench: Bench;
  readonly #claims: Claims;
  /** As it was last, since what is prepared for it follows from its status, also when it is gone. */
  #pod: Pod;
  /** Ids of containers, by name. */
  readonly #containers = new Map<string, string>();
  #sandbox: Sandbox | undefined;

  constructor(bench: Bench, claims: Claims, pod: Pod) {
    this.#bench = bench;
    this.#claims = claims;
    this.#pod = pod;
  }

  /** Runs it until it is deleted and everything of it is gone. */
  async run(signal: AbortSignal): Promise<void> {
    try {
      await this.#untilDone(signal, async () => this.#schedule(), 'FailedScheduling');
      await this.#untilDone(signal, () => this.#start(), 'FailedCreatePodSandBox');
      while (!this.#isDeleted(signal)) {
        await this.#report();
        await systemClock.sleep(pollMs);
      }
    } finally {
      await this.#untilDone(signal, () => this.#end(), 'FailedKillPod', true);
    }
  }

  async exec(container: string, command: string[]) {
    return await exec(this.#bench.containerd.cri, this.#idOf(container), command, 60);
  }

  log(container: string): string {
    this.#idOf(container);
    const { logDirectory = '' } = this.#sandbox?.config ?? {};
    return parseContainerLog(readFileSync(containerLogPath(logDirectory, container), 'utf8'));
  }

  #idOf(container: string): string {
    const id = this.#containers.get(container);
    if (id === undefined) throw new Error(`container ${container} does not run`);
    return id;
  }

  /** Again and again, as the kubelet does; what went wrong is in the pod's status. */
  async #untilDone(signal: AbortSignal, task: () => Promise<boolean>, reason: string, isEnd = false): Promise<void> {
    while (isEnd || !this.#isDeleted(signal)) {
      try {
        if (await task()) return;
        await systemClock.sleep(pollMs);
      } catch (error) {
        if (signal.aborted) throw error;
        this.#setStatus({ reason, message: explain(error) });
        await systemClock.sleep(retryMs);
      }
    }
  }

  #schedule(): boolean {
    this.#claims.generate(this.#current() ?? this.#pod);
    const { nodeName } = this.#bench.settings;
    if (!this.#claims.allocate(this.#pod, nodeName)) return false;
    const { nodeSelector = {} } = this.#pod.spec ?? {};
    const labels = this.#bench.api.get<{ metadata: { labels?: Record<string, string> } }>('Node', nodeName)?.metadata;
    if (Object.entries(nodeSelector).some(([key, value]) => labels?.labels?.[key] !== value)) return false;
    this.#edit((pod) => Object.assign(pod.spec ?? {}, { nodeName }));
    this.#pod = this.#current() ?? this.#pod;
    return true;
  }

  async #start(): Promise<boolean> {
    const pod = this.#pod;
    await this.#bench.prepare(pod);
    this.#sandbox ??= await this.#bench.runSandbox(pod, { hostNetwork: pod.spec?.hostNetwork ?? false });
    for (const container of pod.spec?.containers ?? []) {
      if (!this.#containers.has(container.name)) await this.#startContainer(pod, container, this.#sandbox);
    }
    return true;
  }

  async #startContainer(pod: Pod, container: V1Container, sandbox: Sandbox): Promise<void> {
    const { cri } = this.#bench.containerd;
    const cdiDevices = this.#bench.kubelet.cdiDevicesForContainer(pod, container.name);
    const config = toContainerConfig(pod.spec!, container, cdiDevices);
    const request = { podSandboxId: sandbox.id, config, sandboxConfig: sandbox.config };
    const { containerId } = await cri.call('CreateContainer', request);
    await cri.call('StartContainer', { containerId });
    this.#containers.set(container.name, containerId);
  }

  /** Tells the API server how the containers are. */
  async #report(): Promise<void> {
    const statuses: V1ContainerStatus[] = [];
    for (const [name, containerId] of this.#containers) {
      const { status } = await this.#bench.containerd.cri.call('ContainerStatus', { containerId });
      const isRunning = status.state === 'CONTAINER_RUNNING';
      const state = isRunning ? { running: {} } : { terminated: { exitCode: status.exitCode, reason: status.reason } };
      statuses.push({ name, ready: isRunning, restartCount: 0, image: '', imageID: '', state });
    }
    const codes = statuses.flatMap(({ state }) => state?.terminated?.exitCode ?? []);
    const ended = codes.every((code) => code === 0) ? 'Succeeded' : 'Failed';
    const phase = codes.length === statuses.length ? ended : 'Running';
    const isReady = statuses.every(({ ready }) => ready);
    const status = {
      phase,
      containerStatuses: statuses,
      conditions: [{ type: 'Ready', status: isReady ? 'True' : 'False' }],
    };
    const before = this.#current()?.status;
    if (JSON.stringify([before?.phase, before?.conditions]) === JSON.stringify([phase, status.conditions])) return;
    this.#setStatus(status);
  }

  async #end(): Promise<boolean> {
    const { api } = this.#bench;
    await this.#bench.endPod(this.#pod);
    if (this.#current() !== undefined) api.delete('Pod', this.#pod.metadata.name, this.#pod.metadata.namespace);
    this.#claims.release(this.#pod);
    return true;
  }

  #current(): Pod | undefined {
    const { name, namespace, uid } = this.#pod.metadata;
    const pod = this.#bench.api.get<Pod>('Pod', name, namespace);
    return pod?.metadata.uid === uid ? pod : undefined;
  }

  #isDeleted(signal: AbortSignal): boolean {
    const pod = this.#current();
    return signal.aborted || pod === undefined || 'deletionTimestamp' in pod.metadata;
  }

  #setStatus(status: V1Pod['status']): void {
    this.#edit((pod) => {
      pod.status = { ...pod.status, ...status };
    });
  }

  #edit(change: (pod: V1Pod) => unknown): void {
    if (this.#current() === undefined) return;
    const { name, namespace } = this.#pod.metadata;
    this.#bench.api.edit<V1Pod>('Pod', name, (pod) => void change(pod), namespace);
  }
}
