import { KubeConfig, type V1Pod, Watch } from '@kubernetes/client-node';
import { ClusterError } from '../cluster-facts.ts';

/** When a pod got somewhere, ms since 1970. */
export interface PodTimes {
  /** The scheduler chose a node. */
  boundAtMs: number;
  /** The API server was told that the container runs. */
  runningAtMs: number;
  /** The runtime's id of the container. */
  containerId: string;
}

const timeoutMs = 180_000;

/**
 * What happens to the pods of a namespace, as a watch tells it: the API's own timestamps have whole seconds only.
 */
export class PodWatch implements Disposable {
  readonly #bound = new Map<string, number>();
  readonly #running = new Map<string, PodTimes>();
  readonly #ended = Promise.withResolvers<never>();
  #stop: AbortController | undefined;
  #onChange: () => void = () => undefined;

  static async open(kubeconfig: string, namespace: string): Promise<PodWatch> {
    const config = new KubeConfig();
    config.loadFromFile(kubeconfig);
    const watch = new PodWatch();
    // It may end when no pod is waited for.
    watch.#ended.promise.catch(() => undefined);
    watch.#stop = await new Watch(config).watch(
      `/api/v1/namespaces/${namespace}/pods`,
      {},
      (_, pod: V1Pod) => watch.#see(pod),
      (error) => watch.#ended.reject(new Error('the watch of pods has ended', { cause: error })),
    );
    return watch;
  }

  /** Waits until the containers of all these pods run. @throws ClusterError `not-in-time` with the pods that do not */
  async untilRunning(names: readonly string[]): Promise<Map<string, PodTimes>> {
    const missing = () => names.filter((name) => !this.#running.has(name));
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const late = () =>
      reject(new ClusterError('not-in-time', `not running after ${timeoutMs / 1_000} s: ${missing().join(', ')}`));
    const timer = setTimeout(late, timeoutMs);
    this.#onChange = () => missing().length === 0 && resolve();
    this.#onChange();
    try {
      await Promise.race([promise, this.#ended.promise]);
    } finally {
      clearTimeout(timer);
    }
    return new Map(names.map((name) => [name, this.#running.get(name) as PodTimes]));
  }

  [Symbol.dispose](): void {
    this.#stop?.abort();
  }

  #see({ metadata, spec, status }: V1Pod): void {
    const name = metadata?.name ?? '';
    const now = Date.now();
    if (spec?.nodeName !== undefined && !this.#bound.has(name)) this.#bound.set(name, now);
    const [container] = status?.containerStatuses ?? [];
    if (container?.state?.running !== undefined && !this.#running.has(name)) {
      const containerId = (container.containerID ?? '').replace(/^\w+:\/\//, '');
      this.#running.set(name, { boundAtMs: this.#bound.get(name) ?? now, runningAtMs: now, containerId });
    }
    this.#onChange();
  }
}
