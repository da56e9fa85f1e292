import type { V1Pod } from '@kubernetes/client-node';
import type { KubeClient } from '../../../src/framework/kube/index.ts';
import { ClusterError } from '../cluster-facts.ts';

/** Time for all pods to run. */
const timeoutMs = 180_000;

/** Times of a pod's stages, ms since 1970. */
export interface PodTimes {
  /** The scheduler chose a node. */
  boundAtMs: number;
  /** When the kubelet had reported to the API server that the container runs. */
  runningAtMs: number;
  /** The runtime's id of the container. */
  containerId: string;
}

/**
 * Events of the pods in a namespace, from a watch: the API's own timestamps have whole seconds only.
 */
export class PodWatch implements Disposable {
  readonly #bound = new Map<string, number>();
  readonly #running = new Map<string, PodTimes>();
  readonly #ended = Promise.withResolvers<never>();
  readonly #stop = new AbortController();
  #onChange: () => void = () => undefined;

  /** @param client is not closed */
  static open(client: KubeClient, namespace: string): PodWatch {
    const watch = new PodWatch();
    // The watch may end while no caller waits for a pod.
    watch.#ended.promise.catch(() => undefined);
    void watch.#run(client, namespace);
    return watch;
  }

  /** Waits until the containers of all these pods run. @throws ClusterError `not-in-time` with the pods that do not */
  async untilRunning(names: readonly string[]): Promise<Map<string, PodTimes>> {
    const seen = this.#running;
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const late = () => {
      const missing = names.filter((name) => !seen.has(name));
      const few = missing.slice(0, 10).join(', ');
      const text = `${missing.length} pods not running after ${timeoutMs / 1_000} s: ${few}`;
      reject(new ClusterError('not-in-time', text));
    };
    const timer = setTimeout(late, timeoutMs);
    this.#onChange = () => seen.size >= names.length && names.every((name) => seen.has(name)) && resolve();
    this.#onChange();
    try {
      await Promise.race([promise, this.#ended.promise]);
    } finally {
      clearTimeout(timer);
    }
    return new Map(names.map((name) => [name, seen.get(name)!]));
  }

  [Symbol.dispose](): void {
    this.#stop.abort();
  }

  /** Never rejects. */
  async #run(client: KubeClient, namespace: string): Promise<void> {
    const { signal } = this.#stop;
    try {
      const request = { path: `/api/v1/namespaces/${namespace}/pods`, query: {}, signal };
      // The API server ends a watch that is too slow; the next one starts with the current objects.
      for (;;) for await (const { object } of client.watch<V1Pod>(request)) this.#see(object);
    } catch (cause) {
      this.#ended.reject(new Error('the watch of pods has ended', { cause }));
    }
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
