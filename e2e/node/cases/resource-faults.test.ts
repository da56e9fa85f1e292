import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { explain } from '../../../src/lib/errors.ts';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { testDriver } from '../../../test/doubles/objects.ts';
import { Bench, retry } from '../bench.ts';
import type { DriverProcess } from '../driver-process.ts';
import type { Sandbox } from '../pod.ts';
import { SmallDisk } from '../small-disk.ts';
import { addVfPod, expectClean, expectTold, expectTruth } from '../vf-pod.ts';

const reconcileIntervalMs = 500;
/** Space for all files that the driver writes for a pod, in pages. */
const enoughPages = 64;

describe('the driver on a node that runs out of resources', () => {
  let bench: Bench;
  let root: string;
  let plugins: SmallDisk;
  let cdi: SmallDisk;
  const logger = new RecordingLogger();

  beforeAll(async () => {
    root = mkdtempSync(join(tmpdir(), 'netdra-disks-'));
    plugins = new SmallDisk(join(root, 'plugins'), 2 << 20);
    const settings = { kubeletPluginsDir: plugins.path, reconcileIntervalMs };
    bench = await Bench.start({ version: '1.7', logger, settings });
    cdi = new SmallDisk(bench.settings.cdiDir, 1 << 20);
    // It watches the directory that existed when it started.
    await bench.containerd.restart();
  });
  afterAll(async () => {
    // It is within the bench's own directory.
    cdi?.[Symbol.dispose]();
    await bench?.[Symbol.asyncDispose]();
    plugins?.[Symbol.dispose]();
    rmSync(root, { recursive: true });
  });
  afterEach(async () => {
    for (const disk of [cdi, plugins]) {
      disk.setReadOnly(false);
      disk.empty();
    }
    await retry(() => bench.endAllPods());
    await bench.stopDriver();
    await expectClean(bench);
  });

  /** Makes a step fail for lack of space, adding one page per attempt, until it succeeds. @returns the failures */
  async function squeeze<T>(disk: SmallDisk, step: () => Promise<T>): Promise<{ result: T; failures: string[] }> {
    const failures: string[] = [];
    for (let pages = 0; pages <= enoughPages; pages++) {
      disk.fill(pages);
      try {
        const result = await step();
        disk.empty();
        return { result, failures };
      } catch (error) {
        failures.push((error as Error).message);
      }
    }
    throw new Error(`never succeeded: ${failures.at(-1)}`);
  }

  /** Waits for the first attempt to serve a sandbox. @returns the reason if it failed */
  async function failureIn({ id }: Sandbox): Promise<Error | undefined> {
    const outcomes = ['sandbox ready', 'cannot get a sandbox ready yet'];
    const line = () => logger.lines.find(({ message, fields }) => outcomes.includes(message) && fields.sandbox === id);
    await expect.poll(line, { timeout: 60_000 }).toBeDefined();
    const { err } = line()?.fields ?? {};
    return err === undefined ? undefined : new Error(explain(err));
  }

  const noSpace = /no space left|disk is full|disk I\/O error|ENOSPC/i;

  it('reports a full disk in prepare, hook, stop and unprepare, loses nothing, and succeeds on a retry', async () => {
    await bench.startDriver();
    const pod = await addVfPod(bench, 'full-disk', 0);
    const prepared = await squeeze(plugins, () => bench.prepare(pod));
    expect(prepared.failures.length).toBeGreaterThan(0);
    for (const failure of prepared.failures) expect(failure).toMatch(noSpace);
    const started = await squeeze(plugins, async () => {
      const sandbox = await bench.runSandbox(pod);
      const failure = await failureIn(sandbox);
      if (failure === undefined) return await expectTruth(bench, sandbox, pod);
      await bench.endSandboxes(pod);
      throw failure;
    });
    expect(started.failures.length).toBeGreaterThan(0);
    for (const failure of started.failures) expect(failure).toMatch(noSpace);
    // Without any space: the runtime continues whatever the hook answers, and unprepare reports the error.
    plugins.fill(0);
    await bench.endSandboxes(pod);
    await expect(bench.kubelet.unprepare(pod)).rejects.toThrow(noSpace);
    const ended = await squeeze(plugins, () => bench.endPod(pod));
    for (const failure of ended.failures) expect(failure).toMatch(noSpace);
    await expectClean(bench);
  });

  it('does not prepare a claim while the CDI directory has no space, and reports why', async () => {
    await bench.startDriver();
    const pod = await addVfPod(bench, 'full-cdi', 0);
    const { failures } = await squeeze(cdi, () => bench.prepare(pod));
    expect(failures.length).toBeGreaterThan(0);
    for (const failure of failures) expect(failure).toMatch(/cannot write .*cdi.*(no space left|ENOSPC).*free space/);
    await expectTruth(bench, await bench.runSandbox(pod), pod);
  });

  it('rejects a claim while the CDI directory is read-only, and prepares it once the directory is writable', async () => {
    await bench.startDriver();
    const pod = await addVfPod(bench, 'read-only', 0);
    cdi.setReadOnly(true);
    await expect(bench.prepare(pod)).rejects.toThrow(/read-only file system.*check the mounts of the driver/);
    cdi.setReadOnly(false);
    await bench.prepare(pod);
    await expectTruth(bench, await bench.runSandbox(pod), pod);
    await bench.endPod(pod);
  });

  it('recreates directories that another process removed', async () => {
    // The interval ensures that no reconciliation recreates them before the container's first attempt.
    await bench.startDriver({ reconcileIntervalMs: 60_000 });
    const [pod, next] = [await addVfPod(bench, 'first', 0), await addVfPod(bench, 'second', 1)];
    await bench.prepare(pod);
    rmSync(join(plugins.path, testDriver, 'dra-device-metadata'), { recursive: true });
    // The hook writes the files again: what is in them is known from the store.
    const sandbox = await bench.runSandbox(pod);
    expect(await failureIn(sandbox)).toBeUndefined();
    await expectTruth(bench, sandbox, pod);
    await bench.prepare(next);
    await expectTruth(bench, await bench.runSandbox(next), next);
  });

  it('lets containers wait while it has no free file descriptor (EMFILE)', async () => {
    await using driver = await bench.startProcess();
    const pod = await addVfPod(bench, 'no-descriptors', 0);
    await bench.prepare(pod);
    limitDescriptors(driver, readdirSync(`/proc/${driver.pid}/fd`).length);
    const sandbox = await bench.runSandbox(pod);
    let isStarted = false;
    const starting = retry(() => bench.startContainer(sandbox, pod)).finally(() => {
      isStarted = true;
    });
    await expect.poll(() => driver.messages(), { timeout: 60_000 }).toContain('cannot get a sandbox ready yet');
    expect(isStarted).toBe(false);
    expect(JSON.stringify(driver.log)).toMatch(/too many open files|EMFILE|unable to open/i);
    limitDescriptors(driver, 1_024);
    await expectTold(await starting, sandbox, pod);
    expect(driver.hasExited).toBe(false);
    await bench.endPod(pod);
    await expectClean(bench);
  });
});

/** Descriptors that the process has already opened stay open. */
function limitDescriptors({ pid }: DriverProcess, count: number): void {
  execFileSync('prlimit', ['--pid', String(pid), `--nofile=${count}:`]);
}
