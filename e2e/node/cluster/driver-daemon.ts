import type { V1Pod } from '@kubernetes/client-node';
import { systemClock } from '../../../src/clock.ts';
import type { Identified } from '../../../test/doubles/objects.ts';
import { buildPod } from '../../../test/doubles/objects.ts';
import type { Bench } from '../bench.ts';

export const driverNamespace = 'netdra';

const pollMs = 20;

/** The DaemonSet's part: one pod of the driver on the node, and another one when that is deleted. The driver runs here. */
export class DriverDaemon implements AsyncDisposable {
  readonly #bench: Bench;
  readonly #stop = new AbortController();
  #count = 0;
  #running: Promise<void> = Promise.resolve();

  private constructor(bench: Bench) {
    this.#bench = bench;
  }

  static async start(bench: Bench): Promise<DriverDaemon> {
    const daemon = new DriverDaemon(bench);
    const first = await daemon.#startPod();
    daemon.#running = daemon.#keepRunning(first);
    return daemon;
  }

  async [Symbol.asyncDispose]() {
    this.#stop.abort();
    await this.#running;
    await this.#bench.stopDriver();
  }

  async #startPod(): Promise<Identified<V1Pod>> {
    const pod = buildPod(`netdra-${this.#count++}`, {
      namespace: driverNamespace,
      labels: { 'app.kubernetes.io/name': 'netdra' },
    });
    this.#bench.api.create(pod);
    await this.#bench.startDriver();
    const isReady = [{ type: 'Ready', status: 'True' }];
    const change = (each: V1Pod) => void Object.assign(each, { status: { phase: 'Running', conditions: isReady } });
    this.#bench.api.edit<V1Pod>('Pod', pod.metadata.name, change, driverNamespace);
    return pod;
  }

  async #keepRunning(first: Identified<V1Pod>): Promise<void> {
    for (let pod = first; !this.#stop.signal.aborted; await systemClock.sleep(pollMs)) {
      const { name } = pod.metadata;
      const current = this.#bench.api.get<Identified<V1Pod>>('Pod', name, driverNamespace);
      if (current !== undefined && !('deletionTimestamp' in current.metadata)) continue;
      await this.#bench.stopDriver();
      if (current !== undefined) this.#bench.api.delete('Pod', name, driverNamespace);
      pod = await this.#startPod();
    }
  }
}
