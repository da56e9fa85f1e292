import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, describe, expect, it, vi } from 'vitest';
import { systemClock } from '../../../../src/lib/clock.ts';
import { type HungWrite, KernelWriter } from '../../../../src/node/sriov/kernel-writer.ts';
import { fullPipe } from '../../../doubles/full-pipe.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';

const stack = new DisposableStack();
afterAll(() => stack.dispose());

function bench(timeoutMs = 1_500) {
  const dir = stack.use(tempDir()).path;
  const changes: (readonly HungWrite[])[] = [];
  const writer = stack.use(
    new KernelWriter({ clock: systemClock, timeoutMs, end: () => undefined, onChange: (hung) => changes.push(hung) }),
  );
  const pipe = async (name: string) => stack.use(await fullPipe(join(dir, name)));
  const file = (name: string) => {
    const path = join(dir, name);
    writeFileSync(path, '');
    return path;
  };
  return { dir, writer, pipe, file, changes };
}

/** The processes that write, for this test file. */
function writers(): number[] {
  const isOurs = (pid: string) => {
    try {
      const [, parent] = /\) \S+ (\d+) /.exec(readFileSync(`/proc/${pid}/stat`, 'utf8')) ?? [];
      return Number(parent) === process.pid && readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('--jitless');
    } catch {
      // It has ended.
      return false;
    }
  };
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && isOurs(name))
    .map(Number);
}

const device = (index: number) => `0000:3b:02.${index}`;

describe('KernelWriter', () => {
  it("writes files, and fails with the kernel's error code", async () => {
    const { writer, file, dir } = bench(10_000);
    const path = file('unbind');
    await writer.write(path, device(0), device(0));
    expect(readFileSync(path, 'utf8')).toBe(device(0));
    await expect(writer.write(join(dir, 'nowhere'), 'x', device(0))).rejects.toMatchObject({ code: 'ENOENT' });
    await expect(writer.write(dir, 'x', device(0))).rejects.toMatchObject({ code: 'EISDIR' });
    expect(writer.hung).toEqual([]);
  });

  it('completes a write that arrives at the moment when the idle process ends', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    using _ = { [Symbol.dispose]: () => vi.useRealTimers() };
    const { writer, file } = bench();
    const path = file('driver_override');
    await writer.write(path, 'igbvf', device(0));
    vi.advanceTimersByTime(20_000);
    await writer.write(path, 'vfio-pci', device(0));
    // Since the second write only 10 s have passed, and the end of a process takes a moment.
    for (const ms of [10_000, 20_000]) {
      vi.advanceTimersByTime(ms);
      await writer.write(path, `after ${ms}`, device(0));
      expect(readFileSync(path, 'utf8')).toContain(`after ${ms}`);
    }
  });

  it('writes to other devices and files while more writes hang than the pool has threads', async () => {
    const { writer, pipe, file, changes } = bench();
    const pipes = await Promise.all([0, 1, 2, 3, 4, 5].map((index) => pipe(`unbind${index}`)));
    const writes = pipes.map(({ path }, index) => writer.write(path, 'x', device(index)));
    const outcomes = Promise.allSettled(writes);
    const path = file('bind');
    await writer.write(path, 'other', '0000:3b:02.7');
    expect(await readFile('/proc/self/comm', 'utf8')).not.toBe('');
    for (const outcome of await outcomes) {
      expect(outcome).toMatchObject({ reason: { code: 'device-hangs', retriable: true } });
    }
    expect(writer.hung.map((each) => each.device).sort()).toEqual([0, 1, 2, 3, 4, 5].map(device));
    await expect(writer.write(path, 'x', device(0))).rejects.toThrow('began earlier and has not returned yet');
    for (const { drain } of pipes) drain();
    await expect.poll(() => writer.hung, { timeout: 10_000 }).toEqual([]);
    await writer.write(path, 'again', device(0));
    expect(changes.at(-1)).toEqual([]);
  });

  it('uses one process for all concurrent writes, and a second process only while a write hangs', async () => {
    const { writer, pipe, file } = bench();
    const before = writers();
    const all = Array.from({ length: 60 }, (_, index) => ({
      path: file(`override${index}`),
      pciAddress: `0000:3b:04.${index}`,
    }));
    await Promise.all(all.map(({ path, pciAddress }) => writer.write(path, pciAddress, pciAddress)));
    for (const { path, pciAddress } of all) expect(readFileSync(path, 'utf8')).toBe(pciAddress);
    expect(writers()).toHaveLength(before.length + 1);
    const { path, drain } = await pipe('unbind');
    await expect(writer.write(path, 'x', device(0))).rejects.toMatchObject({ code: 'device-hangs' });
    await Promise.all(all.map(({ path, pciAddress }) => writer.write(path, 'again', pciAddress)));
    expect(writers()).toHaveLength(before.length + 2);
    drain();
    await expect.poll(() => writer.hung, { timeout: 10_000 }).toEqual([]);
  });

  it('fails the writes of a killed process, and continues with a new process', async () => {
    const { writer, pipe, file } = bench(20_000);
    const before = writers();
    const { path } = await pipe('bind');
    // The kill may come before the process has read the request, or while it writes.
    const waiting = expect(writer.write(path, 'x', device(0))).rejects.toThrow('the process that writes to sysfs');
    const started = () => writers().filter((pid) => !before.includes(pid));
    await expect.poll(started).toHaveLength(1);
    for (const pid of started()) process.kill(pid, 'SIGKILL');
    await waiting;
    expect(writer.hung).toEqual([]);
    const other = file('unbind');
    await writer.write(other, 'y', device(0));
    expect(readFileSync(other, 'utf8')).toBe('y');
  });
});
