import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import type { Clock } from '../../lib/clock.ts';
import { defined } from '../../lib/defined.ts';
import { SriovError } from './errors.ts';
import { WriterProcess } from './writer-process.ts';

/** A write that the kernel did not finish within its time limit. */
export interface HungWrite {
  /** PCI address of the device. */
  device: string;
  path: string;
  text: string;
}

export interface KernelWriterOptions {
  /** Ends a process whose writes hang: see `WriterProcessOptions`. */
  end?: (process: ChildProcess) => void;
  clock: Clock;
  /** Time limit for a write, ms. Default: 20 s, which is less than the kubelet waits for a prepare. */
  timeoutMs?: number;
  /** Called when a device begins to hang, and when it has recovered. */
  onChange?: (hung: readonly HungWrite[]) => void;
}

/** Remedy for a write that hangs. */
export const hungWriteHint =
  'end the process that has the device open, such as one with /dev/vfio; if no process has, the kernel log shows what blocks the write, and only a reboot helps';

/**
 * Writes sysfs files on whose content the kernel acts. The kernel may wait for a process that has the device open, or for
 * firmware, without limit, and nothing can interrupt it. So the files are written in another process: one of the four threads
 * of libuv's pool would be lost to the whole driver, and a worker thread would keep the driver from ending. One process makes
 * the writes of many devices, since each process takes some 10 MB; when a write hangs, another process takes over. A device
 * whose write does not return in time gets no further writes until it does. Decision:
 * docs/decisions/0022-hung-devices-are-tainted.md
 */
export class KernelWriter implements Disposable {
  readonly #options: KernelWriterOptions;
  #process: WriterProcess | undefined;
  /** Processes that have not ended: the current one, full ones, and those in which writes hang. */
  readonly #processes = new Set<WriterProcess>();
  readonly #hung = new Map<string, HungWrite>();

  constructor(options: KernelWriterOptions) {
    this.#options = options;
  }

  /** Writes that have not returned, one for each device. */
  get hung(): readonly HungWrite[] {
    return [...this.#hung.values()];
  }

  /**
   * Writes a file. @param device PCI address of the device that the write is for
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
