import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';

/** System calls of a process during a task. */
export interface SystemCalls {
  /** Excludes those of the event loop, of connected sockets, and of V8's own threads and memory. */
  other: number;
  /** All of them, by name. */
  summary: string;
}

/** Calls of Node.js itself: waiting, waking threads, memory. */
const ownCalls = /^(epoll_\w+|futex|madvise|mmap|munmap|mprotect|sched_yield|restart_syscall|clock_\w+|getpid|gettid)$/;
const tries = 5;

/**
 * Counts the system calls of a process, in all its threads, with strace. Periodic activity of the process may
 * fall into the period; so it is tried a few times, and the attempt with the fewest calls counts.
 * @returns `undefined` if strace is not installed
 */
export async function countSystemCalls(pid: number, task: () => Promise<void>): Promise<SystemCalls | undefined> {
  let best: SystemCalls | undefined;
  for (let attempt = 0; attempt < tries && best?.other !== 0; attempt++) {
    const lines = await trace(pid, task);
    if (lines === undefined) return undefined;
    const calls = summarizeCalls(lines);
    if (best === undefined || calls.other < best.other) best = calls;
  }
  return best;
}

async function trace(pid: number, task: () => Promise<void>): Promise<string[] | undefined> {
  const dir = mkdtempSync(join(tmpdir(), 'netdra-strace-'));
  try {
    const path = join(dir, 'calls');
    const strace = spawn('strace', ['-f', '-yy', '-o', path, '-p', String(pid)], {
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    const isThere = await Promise.race([
      once(strace.stderr, 'data').then(() => true),
      once(strace, 'error').then(() => false),
    ]);
    if (!isThere) return undefined;
    // It has reported that it is attached to the first thread; the others follow within a moment.
    await new Promise((resolve) => setTimeout(resolve, 100));
    await task();
    strace.kill('SIGINT');
    await once(strace, 'exit');
    return readFileSync(path, 'utf8').split('\n');
  } finally {
    rmSync(dir, { recursive: true });
  }
}

function summarizeCalls(lines: readonly string[]): SystemCalls {
  const counts = new Map<string, number>();
  let other = 0;
  for (const line of lines) {
    // A call that another thread interrupts has a second line, which begins with `<... name resumed>`.
    const [, name, rest = ''] = /^\d+ +(?:[\d.]+ )?(\w+)\((.*)/.exec(line) ?? [];
    if (name === undefined) continue;
    const isOfLoop = ownCalls.test(name) || /^\d+<(UNIX-STREAM|UNIX|anon_inode:\[eventfd\])/.test(rest);
    const key = isOfLoop || !rest.includes('<') ? name : `${name} of ${basename(/<([^>]*)/.exec(rest)?.[1] ?? '')}`;
    counts.set(key, (counts.get(key) ?? 0) + 1);
    if (!isOfLoop) other += 1;
  }
  const entries = [...counts].sort(([, a], [, b]) => b - a).slice(0, 12);
  return { other, summary: entries.map(([name, count]) => `${count} ${name}`).join(', ') };
}
