import koffi from 'koffi';
import type { Logger } from '../logger.ts';

const everyMs = 1_000;
/** Share of a processor above which the driver counts as working. With 80 VFs and no pods it uses 1 %. */
const workingShare = 0.1;

export interface MemoryTrimmerOptions {
  logger: Logger;
  /** CPU time of the process so far, in ms. Default: from getrusage(2). */
  cpuMs?: () => number;
  /** Returns free memory to the kernel; settles when that is done. Default: malloc_trim(3), in a thread. */
  trim?: () => Promise<void>;
}

/**
 * Returns free memory to the kernel when the driver rests after work. The C library keeps what was freed below memory that is
 * still in use, above all that of V8's compiler: 20 to 30 MB after 30 pods. Does nothing where the C library is not the
 * GNU one.
 */
export class MemoryTrimmer implements Disposable {
  readonly #timer: NodeJS.Timeout;
  readonly #cpuMs: () => number;
  readonly #trim: () => Promise<void>;
  readonly #logger: Logger;
  #lastCpuMs: number;
  #hasWorked = false;

  constructor({ logger, cpuMs = processCpuMs, trim = loadTrim() }: MemoryTrimmerOptions) {
    this.#logger = logger;
    this.#cpuMs = cpuMs;
    this.#trim = trim;
    this.#lastCpuMs = cpuMs();
    this.#timer = setInterval(() => this.#check(), everyMs);
    this.#timer.unref();
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }

  #check(): void {
    const now = this.#cpuMs();
    const isWorking = now - this.#lastCpuMs > workingShare * everyMs;
    this.#lastCpuMs = now;
    if (!isWorking && this.#hasWorked) {
      this.#trim().catch((err: Error) => this.#logger.warn({ err }, 'free memory not returned to the kernel'));
    }
    this.#hasWorked = isWorking;
  }
}

function processCpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1_000;
}

/** malloc_trim(3) is of the GNU C library only. */
function loadTrim(): () => Promise<void> {
  const library = koffi.load(null);
  try {
    const mallocTrim = library.func('int malloc_trim(size_t pad)');
    return () =>
      new Promise((resolve, reject) => {
        mallocTrim.async(0, (error: Error | null) => (error ? reject(error) : resolve()));
      });
  } catch {
    return async () => undefined;
  }
}
