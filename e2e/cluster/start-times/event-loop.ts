import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

/** Where Node.js listens after SIGUSR1; the driver uses the node's network. */
const inspectorUrl = 'http://127.0.0.1:9229/json/list';
/**
 * Sampling interval; the driver's CPU time contains the samples: 0.03 ms each. With 5 ms they were half of what the driver
 * takes at rest.
 */
const resolutionMs = 20;

interface Answer {
  id?: number;
  result?: { result?: { value?: unknown }; exceptionDetails?: { text: string } };
}

/**
 * How long the event loop of another Node.js process is blocked, measured over its inspector: the driver's own metric
 * reports pauses of more than 200 ms only. It needs no support from the driver, so older versions can be measured, too.
 */
export class EventLoop implements Disposable {
  readonly #socket: WebSocket;
  readonly #answers = new Map<number, PromiseWithResolvers<Answer['result']>>();
  #lastId = 0;

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.addEventListener('message', ({ data }) => this.#receive(JSON.parse(String(data)) as Answer));
    socket.addEventListener('close', () => {
      for (const { reject } of this.#answers.values()) reject(new Error('the inspector has closed the connection'));
    });
  }

  /** @throws Error if the process does not open its inspector within 10 s */
  static async of(pid: number): Promise<EventLoop> {
    process.kill(pid, 'SIGUSR1');
    const socket = new WebSocket(await inspectorAddress());
    await new Promise<void>((resolve, reject) => {
      socket.addEventListener('open', () => resolve());
      socket.addEventListener('error', () => reject(new Error(`no connection to ${socket.url}`)));
    });
    const loop = new EventLoop(socket);
    await loop.#evaluate(`{
      const { monitorEventLoopDelay } = process.getBuiltinModule('node:perf_hooks');
      globalThis.benchDelays = monitorEventLoopDelay({ resolution: ${resolutionMs} });
      globalThis.benchDelays.enable();
    }`);
    return loop;
  }

  /** The longest pause since the last call, ms: up to {@link resolutionMs} too long. */
  async longestPauseMs(): Promise<number> {
    const nanoseconds = await this.#evaluate(
      '(() => { const { max } = globalThis.benchDelays; globalThis.benchDelays.reset(); return max; })()',
    );
    return Number(nanoseconds) / 1e6;
  }

  [Symbol.dispose](): void {
    this.#socket.close();
  }

  async #evaluate(expression: string): Promise<unknown> {
    const result = await this.#call('Runtime.evaluate', { expression, returnByValue: true });
    if (result?.exceptionDetails === undefined) return result?.result?.value;
    throw new Error(`the driver's inspector: ${result.exceptionDetails.text}`);
  }

  async #call(method: string, params: object): Promise<Answer['result']> {
    const id = ++this.#lastId;
    const answer = Promise.withResolvers<Answer['result']>();
    this.#answers.set(id, answer);
    this.#socket.send(JSON.stringify({ id, method, params }));
    return await answer.promise;
  }

  #receive({ id, result }: Answer): void {
    this.#answers.get(id ?? 0)?.resolve(result);
    this.#answers.delete(id ?? 0);
  }
}

const idleProgram = `
  const delays = require('node:perf_hooks').monitorEventLoopDelay({ resolution: ${resolutionMs} });
  delays.enable();
  process.on('message', () => {
    process.send(delays.max);
    delays.reset();
  });
`;

/**
 * An idle Node.js process in the cgroup of another one: its event loop pauses are caused by the machine, which has
 * fewer processors than processes that need one.
 */
export class IdleLoop implements Disposable {
  readonly #process: ChildProcess;

  /** @param pid of the process whose share of the processors it uses */
  constructor(pid: number) {
    this.#process = spawn(process.execPath, ['-e', idleProgram], { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
    writeFileSync(join(cpuCgroup(pid), 'cgroup.procs'), String(this.#process.pid));
  }

  /** As {@link EventLoop.longestPauseMs}. */
  async longestPauseMs(): Promise<number> {
    this.#process.send('read');
    const [nanoseconds] = await once(this.#process, 'message');
    return Number(nanoseconds) / 1e6;
  }

  [Symbol.dispose](): void {
    this.#process.kill('SIGKILL');
  }
}

/** The cgroup folder of the CPU controller: of the hierarchy `cpu` of cgroups v1, or of v2. Source: cgroups(7). */
function cpuCgroup(pid: number): string {
  const lines = readFileSync(`/proc/${pid}/cgroup`, 'utf8').trimEnd().split('\n');
  const entries = lines.map((line) => line.split(':') as [id: string, controllers: string, path: string]);
  const own = entries.find(([, controllers]) => controllers.split(',').includes('cpu'));
  if (own !== undefined) return join('/sys/fs/cgroup/cpu', own[2]);
  return join('/sys/fs/cgroup', entries.find(([id]) => id === '0')?.[2] ?? '');
}

async function inspectorAddress(): Promise<string> {
  for (let left = 100; ; left--) {
    try {
      const [target] = (await (await fetch(inspectorUrl)).json()) as { webSocketDebuggerUrl: string }[];
      if (target !== undefined) return target.webSocketDebuggerUrl;
    } catch (cause) {
      if (left === 0) throw new Error(`the driver opens no inspector at ${inspectorUrl}`, { cause });
    }
    await sleep(100);
  }
}
