import { execFileSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pino } from 'pino';
import { Bench as Node } from '../../../e2e/node/bench.ts';
import { parseSandboxInfo, podSandboxConfig } from '../../../e2e/node/pod.ts';
import { containerdSeries } from '../../../e2e/node/tools.ts';
import { NetnsHandle } from '../../../src/node/netlink/index.ts';
import { buildClaim, buildPod, testDriver } from '../../doubles/objects.ts';
import type { Bench, BenchOptions } from '../bench.ts';
import { type Case, interleave, timed } from '../interleave.ts';
import { BareNetlink } from '../reference/bare-netlink.ts';
import { bound, row } from '../result.ts';
import { ShippedDriver } from '../shipped-driver.ts';
import { summarize } from '../stats.ts';

/** Times of pods on a real containerd, with the driver and without. */
export const containerdBench: Bench = {
  name: 'containerd',
  async run(options) {
    await using node = await Node.start({ version: containerdSeries[0], logger: pino({ level: 'silent' }) });
    await using cases = new ContainerdCases(node, options);
    await cases.discover();
    const rounds =
      options.effort === 'full'
        ? { rounds: 8, perRound: 5, warmUpRounds: 1 }
        : { rounds: 1, perRound: 1, warmUpRounds: 0 };
    const [none = [], moved = [], idle = [], working = []] = await interleave(
      [cases.withoutDriver(), cases.withBareMove(), cases.withoutClaims(), cases.withVf()],
      rounds,
    );
    const nothing = { what: 'no plugin', ...summarize(none) };
    const bare = { what: 'no plugin, then a bare move', ...summarize(moved) };
    const [idleMs, workingMs] = [summarize(idle), summarize(working)];
    return {
      name: 'containerd',
      about: `RunPodSandbox of CRI on containerd ${node.containerd.version} with runc and a CNI bridge: the whole time that the kubelet waits for a sandbox. The reference of a pod with a VF moves a link into its namespace afterwards, with two bare requests.`,
      rows: [row('pod without claims', 'ms', idleMs, nothing), row('pod with 1 VF', 'ms', workingMs, bare)],
      bounds: [
        bound(
          'CRI RunPodSandbox, 1 VF / without a plugin, then a bare move',
          workingMs.median / bare.median,
          1.05,
          '×',
        ),
      ],
    };
  },
};

class ContainerdCases implements AsyncDisposable {
  readonly #node: Node;
  readonly #options: BenchOptions;
  #driver: ShippedDriver | undefined;
  #device = '';
  #pods = 0;

  constructor(node: Node, options: BenchOptions) {
    this.#node = node;
    this.#options = options;
  }

  async discover(): Promise<void> {
    await this.#start();
    this.#device = await this.#node.api.until(() => {
      const slices = this.#node.api.objects<{ spec: { devices?: { name: string }[] } }>('ResourceSlice');
      return slices.flatMap(({ spec }) => (spec.devices ?? []).map(({ name }) => name))[0];
    }, 30_000);
  }

  withoutDriver(): Case {
    return { name: 'no plugin', enter: () => this.#stop(), run: () => this.#run(this.#pod([])) };
  }

  /** The least that any component could take: a link is moved into the pod's namespace and set up. */
  withBareMove(): Case {
    return {
      name: 'bare move',
      enter: () => this.#stop(),
      run: async () => {
        const name = `bare${this.#pods}`;
        execFileSync('ip', ['link', 'add', name, 'type', 'veth', 'peer', 'name', `${name}p`]);
        const link = { name, index: Number(readFileSync(`/sys/class/net/${name}/ifindex`, 'utf8')) };
        return await this.#run(this.#pod([]), async (id) => {
          const { info } = await this.#node.containerd.cri.call('PodSandboxStatus', {
            podSandboxId: id,
            verbose: true,
          });
          using netns = NetnsHandle.open(parseSandboxInfo(info.info ?? '').netnsPath ?? '');
          return await timed(async () => {
            using host = new BareNetlink();
            using pod = new BareNetlink(netns);
            await host.moveTo(pod, netns, link);
          });
        });
      },
    };
  }

  withoutClaims(): Case {
    return { name: 'idle', enter: () => this.#start(), run: () => this.#run(this.#pod([])) };
  }

  withVf(): Case {
    return {
      name: 'working',
      enter: () => this.#start(),
      run: async () => {
        const name = `claim-${this.#pods}`;
        const pod = this.#pod([{ name: 'nic', resourceClaimName: name }]);
        const parameters = {
          apiVersion: 'netdra.dev/v1alpha1',
          kind: 'VFConfig',
          interfaceName: 'net1',
          addresses: ['192.0.2.10/24'],
        };
        const requests = [{ name: 'vf', devices: [this.#device] }];
        this.#node.api.create(
          buildClaim(name, { requests, config: [{ source: 'FromClaim', parameters }], pods: [pod] }),
        );
        await this.#node.prepare(pod);
        return await this.#run(pod);
      },
    };
  }

  async [Symbol.asyncDispose]() {
    await this.#node.endAllPods();
    await this.#stop();
  }

  #pod(resourceClaims: { name: string; resourceClaimName: string }[]) {
    this.#options.progress(`containerd: pod ${this.#pods}`);
    return buildPod(`pod-${this.#pods++}`, { uid: randomUUID(), resourceClaims });
  }

  /** @param then work in the sandbox, whose time counts */
  async #run(pod: ReturnType<typeof buildPod>, then?: (sandboxId: string) => Promise<number>): Promise<number> {
    const { cri } = this.#node.containerd;
    const { name, namespace, uid } = pod.metadata;
    const config = podSandboxConfig(cri, { name, namespace, uid });
    mkdirSync(config.logDirectory!, { recursive: true });
    let id = '';
    const ms = await timed(async () => {
      id = (await cri.call('RunPodSandbox', { config })).podSandboxId;
    });
    const more = (await then?.(id)) ?? 0;
    await this.#node.endPod(pod);
    return ms + more;
  }

  async #start(): Promise<void> {
    if (this.#driver !== undefined) return;
    const { kubelet, settings } = this.#node;
    this.#driver = new ShippedDriver(
      this.#options.imageDir,
      settings,
      join(this.#options.workDir, 'containerd-driver.log'),
    );
    await kubelet.waitForDriver(testDriver, 30_000);
    // The runtime has the driver as soon as it sends its state to it: registration with the kubelet comes later.
    await new Promise((resolve) => setTimeout(resolve, 200));
  }

  async #stop(): Promise<void> {
    await this.#driver?.[Symbol.asyncDispose]();
    this.#driver = undefined;
    await this.#node.kubelet.until(() => this.#node.kubelet.plugins(testDriver).length === 0);
  }
}
