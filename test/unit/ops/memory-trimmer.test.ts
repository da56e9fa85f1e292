import koffi from 'koffi';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { MemoryTrimmer } from '../../../src/ops/memory-trimmer.ts';
import { RecordingLogger } from '../../doubles/logger.ts';

afterEach(() => {
  vi.useRealTimers();
});

describe('MemoryTrimmer', () => {
  it('returns memory once the process rests after work, and not again until it has worked again', () => {
    vi.useFakeTimers();
    let used = 0;
    const trim = vi.fn(async () => undefined);
    using _ = new MemoryTrimmer({ logger: new RecordingLogger(), cpuMs: () => used, trim });
    const second = (cpuMs: number) => {
      used += cpuMs;
      vi.advanceTimersByTime(1_000);
      return trim.mock.calls.length;
    };
    const trims = [10, 500, 300, 10, 10, 101, 10, 10].map(second);
    expect(trims).toEqual([0, 0, 0, 1, 1, 1, 2, 2]);
  });

  it('logs why memory could not be returned', async () => {
    vi.useFakeTimers();
    const logger = new RecordingLogger();
    let used = 0;
    const trim = () => Promise.reject(new Error('no threads'));
    using _ = new MemoryTrimmer({ logger, cpuMs: () => used, trim });
    used = 900;
    await vi.advanceTimersByTimeAsync(2_000);
    expect(logger.lines).toMatchObject([
      { level: 'warn', message: 'free memory not returned to the kernel', fields: { err: { message: 'no threads' } } },
    ]);
  });

  it('returns what was freed below memory that is still in use', async () => {
    const library = koffi.load(null);
    const allocate = library.func('void *malloc(size_t size)');
    const fill = library.func('void *memset(void *to, int byte, size_t size)');
    const free = library.func('void free(void *pointer)');
    const blocks = Array.from({ length: 10_000 }, () => allocate(8_000));
    for (const block of blocks) fill(block, 1, 8_000);
    const inUse = allocate(8_000);
    for (const block of blocks) free(block);
    const before = process.memoryUsage.rss();
    let used = 0;
    using _ = new MemoryTrimmer({ logger: new RecordingLogger(), cpuMs: () => used });
    used = 900;
    await expect.poll(() => before - process.memoryUsage.rss(), { timeout: 10_000 }).toBeGreaterThan(40e6);
    free(inUse);
  });
});
