import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterEach, beforeAll, beforeEach, expect, vi } from 'vitest';
import { ClaimMetadata, layouts } from '../../../src/framework/metadata/index.ts';
import { tempDir } from '../../doubles/temp-dir.ts';
import { buildTimeoutMs, checkedTool } from './checked-tool.ts';

export const driver = 'sriov.netdra.dev';

export const claim = { namespace: 'default', name: 'fast-net', uid: 'claim-uid' };

export const sandbox = 'a'.repeat(64);

export const other = 'b'.repeat(64);

export const containerd = { 'io.kubernetes.cri.sandbox-id': sandbox };

export let program: string;

export let dir: ReturnType<typeof tempDir>;

export let metadata: ClaimMetadata;

export let claimDir: string;

export const prepare = (uid = claim.uid) =>
  metadata.prepare({ claim: { ...claim, uid }, requests: { vf: { name: 'vf', devices: [] } } }, new Map());

/** As the driver does it. */
export async function serve(id = sandbox) {
  await metadata.update(claim, 'vf', []);
  await metadata.openGate(claim, id);
}

/** What a runtime writes, shortened. */
export const stateOf = (annotations: unknown = containerd, more: object = {}) =>
  JSON.stringify({ ociVersion: '1.0.2', id: 'c', status: 'creating', annotations, ...more });

export interface Outcome {
  code: number | null;
  signal: NodeJS.Signals | null;
  stderr: string;
  ms: number;
}

export class Run {
  readonly child: ChildProcess;
  readonly outcome: Promise<Outcome>;
  isOver = false;

  constructor(input: string | Buffer, timeout: string, args = ['--claim-dir', claimDir, '--timeout', timeout]) {
    const start = performance.now();
    const child = spawn(program, args, { env: {}, stdio: ['pipe', 'ignore', 'pipe'] });
    child.stdin.on('error', () => undefined);
    child.stdin.end(input);
    this.child = child;
    this.outcome = Promise.all([once(child, 'close'), text(child.stderr)]).then(([[code, signal], stderr]) => {
      this.isOver = true;
      return { code, signal, stderr, ms: performance.now() - start };
    });
  }
}

export const run = (input: string | Buffer = stateOf(), timeout = '0.3') => new Run(input, timeout).outcome;

/** One that goes on waiting until something happens. */
export async function waiting(input = stateOf(), timeout = '50') {
  const waiter = new Run(input, timeout);
  await untilWaiting(waiter);
  expect(waiter.isOver).toBe(false);
  return waiter;
}

/** Waits until a program that was started has read the gate and sleeps until a change, or has ended. */
export async function untilWaiting(waiter: Pick<Run, 'child' | 'isOver'>): Promise<void> {
  const proc = `/proc/${waiter.child.pid}`;
  const isAsleep = () => {
    try {
      const links = readdirSync(`${proc}/fd`).map((descriptor) => readlinkSync(`${proc}/fd/${descriptor}`));
      return links.includes('anon_inode:inotify') && readFileSync(`${proc}/stat`, 'utf8').includes(') S ');
    } catch {
      // A descriptor was closed meanwhile, or the process has ended.
      return false;
    }
  };
  await expect.poll(() => waiter.isOver || isAsleep(), { timeout: 30_000, interval: 10 }).toBe(true);
}

export const tail = (id = sandbox) =>
  ` (sandbox ${id}, claim directory ${claimDir}): see the logs of the netdra pod on this node\n`;

export const message = (what: string, id?: string) => `netdra-gate: ${what}${tail(id)}`;

export const late = 'the devices of the claim were not ready in time';

/** Makes a prepared claim with a gate for each test of a file. */
export function useGateProgram(): void {
  // Programs with sanitizers are slow on a machine with other work.
  vi.setConfig({ testTimeout: 60_000 });
  beforeAll(() => {
    program = checkedTool().gate;
  }, buildTimeoutMs);
  beforeEach(async () => {
    dir = tempDir();
    claimDir = join(dir.path, 'data/dra-device-metadata/default_fast-net');
    metadata = new ClaimMetadata({
      enabled: true,
      driver,
      dataDir: join(dir.path, 'data'),
      cdiDir: join(dir.path, 'cdi'),
      layouts: [layouts.v1],
      gate: { program, timeoutSeconds: 100 },
    });
    await prepare();
  });
  afterEach(() => dir[Symbol.dispose]());
}
