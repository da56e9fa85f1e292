import { mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { FakeRuntime } from '../../../nri/testing.ts';
import { claimDirName } from '../../../src/framework/metadata/layouts/paths.ts';
import { type Link, moveLink, NetnsHandle, RtnlConnection } from '../../../src/node/netlink/index.ts';
import { formatSimulatedAlias } from '../../../src/node/sriov/index.ts';
import { TestNetns } from '../../doubles/netns.ts';
import { testDriver } from '../../doubles/objects.ts';
import type { Bench, BenchOptions } from '../bench.ts';
import { type Case, interleave, timed } from '../interleave.ts';
import { Lab, type LabPod, prepare, unprepare } from '../lab.ts';
import { BareNetlink } from '../reference/bare-netlink.ts';
import { ReferenceProcess } from '../reference/reference-process.ts';
import { bound, row } from '../result.ts';
import { type Distribution, summarize } from '../stats.ts';
import { countSystemCalls } from '../system-calls.ts';

/** How a VF gets into its pod: moved by the driver, or by another component beforehand. */
type Attach = 'netlink' | 'observe';

/** The kernel takes long to move a VF, whoever requests it. */
const vfCounts = {
  full: { observe: [1, 2, 4, 8], netlink: [1, 4, 8] },
  smoke: { observe: [1, 2], netlink: [1] },
} as const;

/** RunPodSandbox as sent by the runtime over ttrpc. */
export const hookBench: Bench = {
  name: 'hook',
  async run(options) {
    await using lab = await Lab.start({ ...options, simulate: { pfs: 1, vfsPerPf: 8 } });
    const driver = await lab.startDriver();
    await using bench = await HookBench.create(lab);
    const results: Measured[] = [];
    for (const attach of ['observe', 'netlink'] as const) {
      for (const vfs of vfCounts[options.effort][attach]) {
        options.progress(`hook: ${vfs} VFs, ${attach}`);
        results.push(await bench.measure(attach, vfs, options));
      }
    }
    options.progress('hook: pod without claims');
    const idle = await bench.measureIdle(options);
    const systemCalls = await countSystemCalls(driver.pid, () => bench.idleHooks(50));
    const of = (attach: Attach) => results.filter((each) => each.attach === attach);
    const [observed, moved] = [of('observe')[0]!, of('netlink')[0]!];
    return {
      name: 'hook',
      about:
        'RunPodSandbox over ttrpc, from the call to its answer, for a claim with one request; two metadata files, as by default. The reference does without driver, ttrpc, state and parsing: it opens a socket in the namespace of the pod, asks for what has to be known, and writes two files of the same size. "VFs already in the pod" is `attach: observe`. "VFs moved" is `attach: netlink`: the reference moves each VF and sets it up with two bare requests.',
      rows: [
        ...results.map(({ attach, vfs, ours, bare }) =>
          row(
            `${vfs} ${vfs === 1 ? 'VF' : 'VFs'} ${attach === 'netlink' ? 'moved' : 'already in the pod'}`,
            'ms',
            ours,
            {
              what: attach === 'netlink' ? 'bare requests, dumps, files' : 'bare dumps, files',
              ...bare,
            },
          ),
        ),
        row('stop of a pod with 1 VF', 'ms', moved.stop),
        row('pod without claims', 'ms', idle.ours, { what: 'echo over a unix socket', ...idle.echo }),
        ...(systemCalls === undefined
          ? []
          : [
              row(
                'calls besides the socket for 50 pods without claims',
                'system calls',
                summarize([systemCalls.other]),
              ),
            ]),
      ],
      bounds: [
        bound('hook, 1 VF in the pod / bare dumps + files', observed.ours.median / observed.bare.median, 2, '×'),
        bound('hook, 1 VF moved / bare requests + dumps + files', moved.ours.median / moved.bare.median, 2, '×'),
        ...(systemCalls === undefined
          ? []
          : [
              // SQLite's two, with which it sees whether another instance of the driver has written.
              bound(
                'system calls of 50 pods without claims, besides the socket',
                systemCalls.other,
                100,
                'system calls' as const,
              ),
            ]),
      ],
      plots: [
        {
          name: 'hook',
          title: 'RunPodSandbox, by the VFs of the pod (median)',
          xLabel: 'VFs',
          yLabel: 'ms',
          series: (['netlink', 'observe'] as const).flatMap((attach) => {
            const name = attach === 'netlink' ? 'moved' : 'already there';
            return [
              { name, points: of(attach).map(({ vfs, ours }): [number, number] => [vfs, ours.median]) },
              {
                name: `reference: ${name}`,
                points: of(attach).map(({ vfs, bare }): [number, number] => [vfs, bare.median]),
              },
            ];
          }),
        },
      ],
      notes:
        systemCalls === undefined
          ? ['strace is not there, so the system calls of pods without claims were not counted.']
          : [`System calls of 50 pods without claims: ${systemCalls.summary}.`],
    };
  },
};

interface Measured {
  attach: Attach;
  vfs: number;
  ours: Distribution;
  bare: Distribution;
  stop: Distribution;
}

class HookBench implements AsyncDisposable {
  readonly #lab: Lab;
  readonly #runtime: FakeRuntime;
  readonly #reference: ReferenceProcess;
  readonly #devices: string[];
  readonly #netns: NetnsHandle;
  readonly #hostNetns: NetnsHandle;
  readonly #host: RtnlConnection;
  readonly #stack: AsyncDisposableStack;
  #sandboxes = 0;
  #pods = 0;

  private constructor(lab: Lab, reference: ReferenceProcess, devices: string[], stack: AsyncDisposableStack) {
    this.#lab = lab;
    this.#runtime = lab.runtime;
    this.#reference = reference;
    this.#devices = devices;
    this.#stack = stack;
    this.#netns = stack.use(stack.use(new TestNetns('pod')).open());
    this.#hostNetns = stack.use(NetnsHandle.own());
    this.#host = stack.use(RtnlConnection.open());
  }

  static async create(lab: Lab): Promise<HookBench> {
    await using stack = new AsyncDisposableStack();
    const dir = mkdtempSync(join(tmpdir(), 'netdra-reference-'));
    stack.defer(() => rmSync(dir, { recursive: true }));
    const apiUrl = `https://127.0.0.1:${lab.apiPort}`;
    const reference = stack.use(await ReferenceProcess.start({ imageDir: lab.imageDir, dir, apiUrl }));
    const devices = await lab.devices();
    return new HookBench(lab, reference, devices, stack.move());
  }

  async measure(attach: Attach, vfs: number, options: BenchOptions): Promise<Measured> {
    const devices = this.#devices.slice(0, vfs);
    const pod = this.#lab.addPod(`h${this.#pods++}`, [devices], { attach });
    const stops: number[] = [];
    const ours: Case = { name: 'ours', run: () => this.#runOurs(attach, pod, devices, stops) };
    const files = await this.#fileTexts(attach, pod, devices);
    const bare: Case = { name: 'bare', run: () => this.#runBare(attach, pod, devices, files) };
    const rounds =
      options.effort === 'full'
        ? attach === 'observe'
          ? { rounds: 8, perRound: 5, warmUpRounds: 2 }
          : { rounds: 6, perRound: 4, warmUpRounds: 1 }
        : { rounds: 2, perRound: 2, warmUpRounds: 0 };
    const [ourMs = [], bareMs = []] = await interleave([ours, bare], rounds);
    return {
      attach,
      vfs,
      ours: summarize(ourMs),
      bare: summarize(bareMs),
      stop: summarize(stops.slice(-ourMs.length)),
    };
  }

  async measureIdle({ effort }: BenchOptions): Promise<{ ours: Distribution; echo: Distribution }> {
    // As long as the event of a pod on the wire.
    const bytes = Buffer.alloc(200, 1);
    const rounds =
      effort === 'full' ? { rounds: 10, perRound: 50, warmUpRounds: 10 } : { rounds: 2, perRound: 2, warmUpRounds: 0 };
    const [ours = [], echo = []] = await interleave(
      [
        { name: 'ours', run: () => timed(() => this.idleHooks(1)) },
        { name: 'echo', run: () => timed(() => this.#reference.echo(bytes)) },
      ],
      rounds,
    );
    return { ours: summarize(ours), echo: summarize(echo) };
  }

  /** Hooks of pods without claims, one after the other. */
  async idleHooks(count: number): Promise<void> {
    for (let each = 0; each < count; each++) {
      const number = this.#sandboxes++;
      await this.#runtime.runPodSandbox(this.#sandbox(`idle-${number}`, `uid-${number}`));
    }
  }

  async [Symbol.asyncDispose]() {
    await this.#stack.disposeAsync();
  }

  #sandbox(name: string, uid: string) {
    const namespaces = [{ type: 'network', path: this.#netns.path }];
    return { id: `s${this.#sandboxes++}`, name, namespace: 'default', uid, namespaces };
  }

  async #runOurs(attach: Attach, pod: LabPod, devices: string[], stops: number[]): Promise<number> {
    const sandbox = this.#sandbox(pod.name, pod.uid);
    await prepare(this.#lab.dra, pod.claims);
    if (attach === 'observe') await this.#moveIn(devices);
    const ms = await timed(() => this.#runtime.runPodSandbox(sandbox));
    if (attach === 'observe') await this.#moveOut(devices);
    stops.push(await timed(() => this.#runtime.stopPodSandbox(sandbox)));
    await this.#runtime.removePodSandbox(sandbox);
    await unprepare(this.#lab.dra, pod.claims);
    return ms;
  }

  /** The content of the metadata files that the driver writes for the pod. */
  async #fileTexts(attach: Attach, pod: LabPod, devices: string[]): Promise<string[]> {
    const sandbox = this.#sandbox(pod.name, pod.uid);
    await prepare(this.#lab.dra, pod.claims);
    if (attach === 'observe') await this.#moveIn(devices);
    await this.#runtime.runPodSandbox(sandbox);
    const [claim] = pod.claims;
    const dir = join(
      this.#lab.settings.kubeletPluginsDir,
      testDriver,
      'dra-device-metadata',
      claimDirName(claim!),
      'vf',
    );
    const texts = readdirSync(dir).map((name) => readFileSync(join(dir, name), 'utf8'));
    if (attach === 'observe') await this.#moveOut(devices);
    await this.#runtime.stopPodSandbox(sandbox);
    await this.#runtime.removePodSandbox(sandbox);
    await unprepare(this.#lab.dra, pod.claims);
    return texts;
  }

  /** The links of devices, at their current location in the simulation. */
  async #linksOf(devices: string[], connection = this.#host): Promise<Link[]> {
    const links = await connection.links();
    return devices.map((device) => {
      const link = links.find((each) => each.alias === formatSimulatedAlias(pciAddressOf(device)));
      if (link === undefined) throw new Error(`${device} is not where it should be`);
      return link;
    });
  }

  async #moveIn(devices: string[]): Promise<void> {
    using pod = RtnlConnection.open(this.#netns);
    for (const link of await this.#linksOf(devices)) {
      const { index: moved } = await moveLink(this.#host, link, { netns: this.#netns, connection: pod });
      await pod.setLink(moved, { up: true });
    }
  }

  async #moveOut(devices: string[]): Promise<void> {
    using pod = RtnlConnection.open(this.#netns);
    for (const link of await this.#linksOf(devices, pod)) {
      await moveLink(pod, link, { netns: this.#hostNetns, connection: this.#host });
    }
  }

  async #runBare(attach: Attach, pod: LabPod, devices: string[], files: string[]): Promise<number> {
    // A VF that is elsewhere without a claim could not be prepared in the next turn: the driver would withdraw it.
    await prepare(this.#lab.dra, pod.claims);
    if (attach === 'observe') await this.#moveIn(devices);
    const links = attach === 'netlink' ? await this.#linksOf(devices) : [];
    const ms = await timed(async () => {
      using bare = new BareNetlink(this.#netns);
      using host = new BareNetlink();
      for (const link of links) await host.moveTo(bare, this.#netns, link);
      await bare.dumps();
      for (const [number, text] of files.entries()) {
        const path = join(this.#lab.settings.kubeletPluginsDir, `bare-${number}`);
        writeFileSync(`${path}.tmp`, text);
        renameSync(`${path}.tmp`, path);
      }
    });
    await this.#moveOut(devices);
    await unprepare(this.#lab.dra, pod.claims);
    return ms;
  }
}

/** `fe00-00-02-0` is the device `fe00:00:02.0`. */
function pciAddressOf(device: string): string {
  return device.replace(/^(.*)-(.*)-(.*)-(.*)$/, '$1:$2:$3.$4');
}
