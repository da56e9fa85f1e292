import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Clock } from '../../lib/clock.ts';
import { SriovError } from './errors.ts';

/** A write that the kernel has not finished within its deadline. */
export interface HungWrite {
  /** PCI address. */
  device: string;
  path: string;
  text: string;
}

export interface KernelWriterOptions {
  clock: Clock;
  /** How long a write may take, ms. Default: 20 s, less than the kubelet waits for a prepare. */
  timeoutMs?: number;
  /** Ends a process whose write hangs. Default: SIGKILL, which takes effect when the kernel returns from the write. */
  end?: (process: ChildProcess) => void;
  /** Called when a device begins to hang, and when it no longer hangs. */
  onChange?: (hung: readonly HungWrite[]) => void;
}

/** What an administrator can do about a write that hangs. */
export const hungWriteHint =
  'end the process that has the device open, such as one with /dev/vfio; if none has, the kernel log says what it waits for, and only a reboot helps';

/** How long an idle process waits for another write before it ends, ms. */
const idleMs = 30_000;

/**
 * Program of the writing process. It is passed on the command line, so that the image needs no file for it. It creates
 * nothing and reads nothing: the kernel lets no process read `unbind`, not even one of root.
 */
const program = `
const { constants, writeFileSync } = require('node:fs');
process.on('message', ({ path, text }) => {
  let error;
  try { writeFileSync(path, text, { flag: constants.O_WRONLY }); } catch (cause) { error = { code: cause.code, message: cause.message }; }
  process.send({ error });
});
process.on('disconnect', () => process.exit());
process.send({ ready: true });`;

type Answer = { error?: { code?: string; message: string } };

/**
 * Writes to sysfs files that make the kernel act: the kernel may wait there for a process that has the device open, or
 * for firmware, without limit, and nothing can interrupt it. So each such write is made in a process of its own: a
 * thread of libuv's pool, of which there are four, would be lost to the whole driver, and a worker would keep it from
 * ending. A device whose write does not return in time gets no further writes until it does.
 * Decision: docs/decisions/0022-hung-devices-are-tainted.md
 */
export class KernelWriter implements Disposable {
  readonly #options: KernelWriterOptions;
  /** Processes without work, each with the timer that ends it. */
  readonly #idle = new Map<ChildProcess, NodeJS.Timeout>();
  readonly #hung = new Map<string, HungWrite>();
  readonly #children = new Set<ChildProcess>();

  constructor(options: KernelWriterOptions) {
    this.#options = options;
  }

  /** Writes that have not returned, one for each device. */
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
    if (earlier !== undefined) throw hangs(earlier, 'has not come back since an earlier write');
    const child = this.#takeIdle() ?? (await this.#start(path));
    const answered = answerOf(child, { path, text });
    using deadline = this.#options.clock.deadline(timeoutMs);
    const outcome = await Promise.race([answered, once(deadline.signal, 'abort')]);
    if (Array.isArray(outcome)) {
      const hung = { device, path, text };
      this.#hung.set(device, hung);
      const { end = (process: ChildProcess) => void process.kill('SIGKILL') } = this.#options;
      end(child);
      void answered.then(() => this.#hung.delete(device) && this.#options.onChange?.(this.hung));
      this.#options.onChange?.(this.hung);
      throw hangs(hung, `has not come back within ${timeoutMs / 1_000} s`);
    }
    this.#rest(child);
    if (outcome.error === undefined) return;
    throw Object.assign(new Error(outcome.error.message), { code: outcome.error.code });
  }

  [Symbol.dispose](): void {
    for (const child of this.#children) child.kill('SIGKILL');
  }

  /** Starting may take long on a busy machine, which is not the device's fault. @throws Error if it does not start */
  async #start(path: string): Promise<ChildProcess> {
    const child = spawn(process.execPath, ['--jitless', '--max-semi-space-size=1', '-e', program], {
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
      env: {},
    });
    // It must not keep the driver from ending.
    child.unref();
    this.#children.add(child);
    child.once('exit', () => this.#forget(child));
    child.once('error', () => this.#forget(child));
    const { error } = await nextAnswer(child, path);
    if (error !== undefined) throw new Error(error.message);
    return child;
  }

  /** The one that worked last, so that those which are not needed any more end. */
  #takeIdle(): ChildProcess | undefined {
    const child = [...this.#idle.keys()].at(-1);
    if (child !== undefined) this.#stopResting(child);
    return child;
  }

  #stopResting(child: ChildProcess): void {
    clearTimeout(this.#idle.get(child));
    this.#idle.delete(child);
  }

  #forget(child: ChildProcess): void {
    this.#children.delete(child);
    this.#stopResting(child);
  }

  #rest(child: ChildProcess): void {
    if (!this.#children.has(child)) return;
    child.channel?.unref();
    const end = () => {
      // No write may take it any more: it lives for a moment after the signal.
      this.#stopResting(child);
      child.kill('SIGKILL');
    };
    this.#idle.set(child, setTimeout(end, idleMs).unref());
  }
}

function answerOf(child: ChildProcess, message: { path: string; text: string }): Promise<Answer> {
  const answer = nextAnswer(child, message.path);
  child.send(message, (error) => error && child.emit('error', error));
  return answer;
}

/** The next answer of a process, or an error if the process ends. */
function nextAnswer(child: ChildProcess, path: string): Promise<Answer> {
  return new Promise((resolve) => {
    const finish = (answer: Answer) => {
      child.off('message', finish).off('exit', ended).off('error', failed);
      resolve(answer);
    };
    const ended = () => finish({ error: { message: `the process that writes ${path} ended` } });
    const failed = (cause: Error) =>
      finish({ error: { message: `cannot use a process that writes ${path}: ${cause.message}` } });
    child.on('message', finish).once('exit', ended).once('error', failed);
    child.channel?.ref();
  });
}

function hangs({ device, path, text }: HungWrite, what: string): SriovError {
  return new SriovError('device-hangs', `${device}: the write of ${JSON.stringify(text)} to ${path} ${what}`, {
    device,
    path,
    retriable: true,
    hint: hungWriteHint,
  });
}
