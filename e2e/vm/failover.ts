/** The failover of a bond, in steps that the demo prints and a case checks. */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { isDeepStrictEqual, promisify } from 'node:util';
import type { ResourceV1ResourceClaim } from '@kubernetes/client-node';
import { loadAll } from 'js-yaml';
import type { MetadataDocument } from '../../src/framework/metadata/index.ts';
import { testDriver } from '../../test/doubles/objects.ts';
import { vfConfig } from './vf-config.ts';
import { cableScript, type pfNames, type VfState, vfAt } from './vfs.ts';
import { deviceName, type RunningPod, readMetadata, type VmNode } from './vm-node.ts';

/** Runs a step, and shows it if anybody looks. */
export type Step = <T>(what: string, task: () => Promise<T>) => Promise<T>;

/** What a failover has shown. */
export interface Failover {
  bonded: RunningPod;
  before: MetadataDocument;
  after: MetadataDocument;
  /** The longest time without an answer to a ping. */
  interruptionMs: number;
  /** Names of the devices that have the taint. */
  tainted: string[];
  /** The VF that the next pod has got. */
  next: VfState;
}

const example = fileURLToPath(new URL('../../examples/bond.yaml', import.meta.url));
const taint = `${testDriver}/no-carrier`;
const peer = '192.0.2.21';
const pingEveryMs = 100;
/** Far more than it takes, since processors are emulated. */
const stepMs = 60_000;

/** The cable of `pf0` stays pulled. @param more fields of the bond's configuration, besides those of the example */
export async function failOver(node: VmNode, vfs: VfState[], step: Step, more: object = {}): Promise<Failover> {
  const [claim] = loadAll(readFileSync(example, 'utf8')) as ResourceV1ResourceClaim[];
  const parameters = claim?.spec.devices?.config?.[0]?.opaque?.parameters;
  const members = [vfAt(vfs, 'pf0', 4), vfAt(vfs, 'pf1', 4)];
  const bonded = await step('a pod with the bond of examples/bond.yaml: a VF of each card', () =>
    node.startPod('bonded', members, [vfConfig({ ...parameters, ...more })]),
  );
  const before = await step('its metadata: the bond uses the VF of pf0', () =>
    untilActive(node, bonded, [true, false]),
  );
  await step(`a second pod, ${peer}, on pf1; the first one pings it every ${pingEveryMs} ms`, () =>
    node.startPod('peer', vfAt(vfs, 'pf1', 5), [vfConfig({ interfaceName: 'net1', addresses: [`${peer}/24`] })]),
  );
  await using pings = await Pings.start(bonded.sandbox.netnsPath);
  await step('the cable of pf0 is pulled: the card has no carrier, and its VFs lose their link', () =>
    setCable('pf0', false),
  );
  const after = await step('its metadata: the bond uses the VF of pf1', () => untilActive(node, bonded, [false, true]));
  const interruptionMs = await pings.longestGapMs();
  const tainted = await step(`the slice: VFs with the taint ${taint}`, () => untilTainted(node));
  const next = vfs.find((vf) => !tainted.includes(deviceName(vf)));
  if (next === undefined) throw new Error('every VF has the taint');
  await step('the next pod gets the first VF without a taint, as the scheduler would choose', () =>
    node.startPod('next', next, [vfConfig({ interfaceName: 'net1' })]),
  );
  return { bonded, before, after, interruptionMs, tainted, next };
}

/** Pulls the cable of a PF, or plugs it in again. */
export async function setCable(pf: (typeof pfNames)[number], isPlugged: boolean): Promise<void> {
  await promisify(execFile)('bash', ['-euc', cableScript(pf, isPlugged)], { timeout: stepMs });
}

/** Which of the bond's members are active, as the metadata of their request says. */
export function activeIn({ devices }: MetadataDocument): (boolean | undefined)[] {
  return devices.map(({ attributes }) => attributes?.bondActive?.bool);
}

async function untilActive(node: VmNode, running: RunningPod, wanted: boolean[]): Promise<MetadataDocument> {
  await until(
    () => node.metadataOnHost(running),
    (document) => isDeepStrictEqual(activeIn(document), wanted),
  );
  return await readMetadata(running);
}

async function untilTainted(node: VmNode): Promise<string[]> {
  const tainted = async () =>
    node.offeredDevices().flatMap(({ name, taints }) => (taints?.some(({ key }) => key === taint) ? [name] : []));
  return await until(tainted, ({ length }) => length > 0);
}

async function until<T>(read: () => Promise<T>, isWanted: (value: T) => boolean): Promise<T> {
  for (const endsAt = performance.now() + stepMs; ; await sleep(pingEveryMs)) {
    const value = await read();
    if (isWanted(value)) return value;
    if (performance.now() > endsAt) throw new Error(`after ${stepMs / 1_000} s it is ${JSON.stringify(value)}`);
  }
}

/** Pings the peer from a network namespace. */
class Pings implements AsyncDisposable {
  readonly #ping: ChildProcess;
  /** When each answer came, in ms. */
  readonly #answers: number[] = [];

  private constructor(netnsPath: string) {
    this.#ping = spawn('nsenter', [`--net=${netnsPath}`, 'ping', '-n', '-D', '-i', `${pingEveryMs / 1_000}`, peer], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    if (this.#ping.stdout === null) throw new Error('ping has no output');
    createInterface(this.#ping.stdout).on('line', (line) => {
      const [, seconds] = /^\[([\d.]+)\] \d+ bytes from /.exec(line) ?? [];
      if (seconds !== undefined) this.#answers.push(1_000 * Number(seconds));
    });
  }

  /** Waits for the first answers. */
  static async start(netnsPath: string): Promise<Pings> {
    const pings = new Pings(netnsPath);
    await pings.#untilMore();
    return pings;
  }

  /** Waits until answers arrive again. @returns the longest time without one, in ms */
  async longestGapMs(): Promise<number> {
    await this.#untilMore();
    return Math.max(...this.#answers.slice(1).map((at, index) => at - (this.#answers[index] ?? at)));
  }

  async #untilMore(): Promise<void> {
    const { length } = this.#answers;
    await until(
      async () => this.#answers.length,
      (count) => count >= length + 3,
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const ended = once(this.#ping, 'close');
    this.#ping.kill();
    await ended;
  }
}
