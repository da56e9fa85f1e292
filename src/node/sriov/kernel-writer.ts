import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import type { Clock } from '../../lib/clock.ts';
import { defined } from '../../lib/defined.ts';
import { SriovError } from './errors.ts';
import { WriterProcess } from './writer-process.ts';

/** A write that the kernel has not finished within its deadline. */
export interface HungWrite {
  /** PCI address of the device. */
  device: string;
  path: string;
  text: string;
}

export interface KernelWriterOptions {
  /** Ends a process in which writes hang: see `WriterProcessOptions`. */
  end?: (process: ChildProcess) => void;
  clock: Clock;
  /** Time limit of a write, ms. Default: 20 s, less than the kubelet waits for a prepare. */
  timeoutMs?: number;
  /** Called when a device begins to hang, and when it no longer hangs. */
  onChange?: (hung: readonly HungWrite[]) => void;
}

/** What an administrator can do about a write that hangs. */
export const hungWriteHint =
  'end the process that has the device open, such as one with /dev/vfio; if no process has, the kernel log shows what blocks the write, and only a reboot helps';

/**
 * Writes to sysfs files that make the kernel act: the kernel may wait there for a process that has the device open, or for
 * firmware, without limit, and nothing can interrupt it. So such writes are made in another process: a thread of libuv's
 * pool, of which there are four, would be lost to the whole driver, and a worker would keep it from ending. One process
 * makes the writes of many devices at once, since each process takes some 10 MB, until a write hangs; then another process
 * takes over. A device whose write does not return in time gets no further writes until it does. Decision:
 * docs/decisions/0022-hung-devices-are-tainted.md
 */
export class KernelWriter implements Disposable {
  readonly #options: KernelWriterOptions;
  #process: WriterProcess | undefined;
  /** Processes that have not ended: the current one, and those that are full, or in which writes hang. */
  readonly #processes = new Set<WriterProcess>();
  readonly #hung = new Map<string, HungWrite>();

  constructor(options: KernelWriterOptions) {
    this.#options = options;
  }

  /** Returns the writes that have not returned, one for each device. */
  get hung(): readonly HungWrite[] {
    return [...this.#hung.values()];
  }

  /**
   * @param device PCI address of the device that the write is for
   * @throws SriovError `device-hangs`; the error of the write itself, with its `code`
   */
  async write(
    path: string,
    text: string,
    device: string,
    timeoutMs = this.#options.timeoutMs ?? 20_000,
  ): Promise<void> {
    const earlier = this.#hung.get(device);
    if (earlier !== undefined) throw hangs(earlier, 'began earlier and has not returned yet');
    let writer: WriterProcess;
    do {
      writer = this.#openProcess();
      await writer.ready;
    } while (!writer.takesMore);
    const { result, abandon } = writer.write(path, text);
    using deadline = this.#options.clock.deadline(timeoutMs);
    const outcome = await Promise.race([result, once(deadline.signal, 'abort')]);
    if (Array.isArray(outcome)) {
      const hung = { device, path, text };
      this.#hung.set(device, hung);
      abandon();
      void result.then(() => this.#hung.delete(device) && this.#options.onChange?.(this.hung));
      this.#options.onChange?.(this.hung);
      throw hangs(hung, `has not returned within ${timeoutMs / 1_000} s`);
    }
    if (outcome.error === undefined) return;
    throw Object.assign(new Error(outcome.error.message), { code: outcome.error.code });
  }

  [Symbol.dispose](): void {
    for (const each of this.#processes) each[Symbol.dispose]();
  }

  #openProcess(): WriterProcess {
    if (this.#process?.takesMore) return this.#process;
    const { end } = this.#options;
    const opened = new WriterProcess({ onExit: () => this.#processes.delete(opened), ...defined({ end }) });
    this.#process = opened;
    this.#processes.add(opened);
    return opened;
  }
}

function hangs({ device, path, text }: HungWrite, what: string): SriovError {
  const message = `${device}: the write of ${JSON.stringify(text)} to ${path} ${what}`;
  return new SriovError('device-hangs', message, { device, path, retriable: true, hint: hungWriteHint });
}
