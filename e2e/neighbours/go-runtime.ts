import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';

/** A refused event: the text is what the runtime would put into the events of the pod. */
export class RefusedError extends Error {}

export interface GoRuntimeOptions {
  /** `e2e/go/nri-runtime-*`, built. */
  program: string;
  socketPath: string;
  /** Folder with plugins that the runtime starts by itself. */
  pluginDir: string;
  /** How long it waits for an answer, ms. */
  requestTimeoutMs: number;
}

/** A pod or a container as Go names the fields of `nri.proto` in JSON. */
export interface GoPod {
  id: string;
  annotations?: Record<string, string>;
}
export interface GoContainer {
  id: string;
  pod_sandbox_id: string;
  name?: string;
}

/** The `adaptation` package of containerd/nri in a process of its own: what containerd has plugins connect to. */
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
    // A killed one does not take its input.
    this.#child.stdin.on('error', () => undefined);
    this.#child.stderr.setEncoding('utf8').on('data', (text) => {
      this.#log = (this.#log + text).slice(-20_000);
    });
    createInterface({ input: this.#child.stdout }).on('line', (line) => this.#answered(JSON.parse(line)));
  }

  /** Resolves as soon as plugins can connect, and those that it starts itself did. */
  static async start(options: GoRuntimeOptions): Promise<GoRuntime> {
    const runtime = new GoRuntime(options);
    await runtime.#answer(0);
    return runtime;
  }

  /** The end of what it wrote to its log. */
  get log(): string {
    return this.#log;
  }

  /** Adds to what exists, without an event. */
  addState(pods: GoPod[], containers: GoContainer[]): Promise<void> {
    return this.#call('state', { pods, containers });
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

  /** Ends it as a crash does. */
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
