import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';

/** A refused event: the text is what the runtime would write into the pod's events. */
export class RefusedError extends Error {}

export interface GoRuntimeOptions {
  /** The built program of `e2e/go/nri-runtime-*`. */
  program: string;
  socketPath: string;
  /** Folder with plugins that the runtime starts itself. */
  pluginDir: string;
  /** Timeout for a plugin's answer, ms. */
  requestTimeoutMs: number;
}

/** A pod or a container with the JSON field names that Go gives the fields of `nri.proto`. */
export interface GoPod {
  id: string;
  annotations?: Record<string, string>;
}
export interface GoContainer {
  id: string;
  pod_sandbox_id: string;
  name?: string;
}

/** The `adaptation` package of containerd/nri in a separate process: containerd's code to which plugins connect. */
export class GoRuntime implements AsyncDisposable {
  readonly #child: ChildProcessByStdio<Writable, Readable, Readable>;
  readonly #exit: Promise<unknown>;
  readonly #calls = new Map<number, PromiseWithResolvers<void>>();
  #lastId = 0;
  #log = '';

  private constructor({ program, socketPath, pluginDir, requestTimeoutMs }: GoRuntimeOptions) {
    this.#child = spawn(program, [socketPath, pluginDir, `${requestTimeoutMs}ms`], { stdio: ['pipe', 'pipe', 'pipe'] });
    this.#exit = once(this.#child, 'close').then(() => {
      for (const { reject } of this.#calls.values()) reject(new Error(`the runtime ended:\n${this.log}`));
      this.#calls.clear();
    });
    // A killed process no longer reads its input.
    this.#child.stdin.on('error', () => undefined);
    this.#child.stderr.setEncoding('utf8').on('data', (text) => {
      this.#log = (this.#log + text).slice(-20_000);
    });
    createInterface({ input: this.#child.stdout }).on('line', (line) => this.#answered(JSON.parse(line)));
  }

  /** Resolves as soon as plugins can connect, and those that it starts itself have connected. */
  static async start(options: GoRuntimeOptions): Promise<GoRuntime> {
    const runtime = new GoRuntime(options);
    await runtime.#answer(0);
    return runtime;
  }

  /** The end of its log. */
  get log(): string {
    return this.#log;
  }

  /** @throws RefusedError */
  runPodSandbox(pod: GoPod): Promise<void> {
    return this.#call('RunPodSandbox', { pod });
  }

  /** @throws RefusedError */
  stopPodSandbox(pod: GoPod): Promise<void> {
    return this.#call('StopPodSandbox', { pod });
  }

  /** @throws RefusedError */
  removePodSandbox(pod: GoPod): Promise<void> {
    return this.#call('RemovePodSandbox', { pod });
  }

  /** @throws RefusedError */
  createContainer(pod: GoPod, container: GoContainer): Promise<void> {
    return this.#call('CreateContainer', { pod, container });
  }

  /** Ends it abruptly, as in a crash. */
  async kill(): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.#exit;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#child.stdin.end();
    await this.#exit;
  }

  #call(method: string, request: object): Promise<void> {
    const id = ++this.#lastId;
    this.#child.stdin.write(`${JSON.stringify({ id, method, request })}\n`);
    return this.#answer(id);
  }

  #answer(id: number): Promise<void> {
    const call = Promise.withResolvers<void>();
    this.#calls.set(id, call);
    return call.promise;
  }

  #answered({ id, error }: { id: number; error?: string }): void {
    const call = this.#calls.get(id);
    this.#calls.delete(id);
    if (error === undefined) call?.resolve();
    else call?.reject(new RefusedError(error));
  }
}
