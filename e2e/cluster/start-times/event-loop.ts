import { setTimeout as sleep } from 'node:timers/promises';

/** Where Node.js listens once SIGUSR1 has asked it to; the driver has the node's network. */
const inspectorUrl = 'http://127.0.0.1:9229/json/list';
const resolutionMs = 5;

interface Answer {
  id?: number;
  result?: { result?: { value?: unknown }; exceptionDetails?: { text: string } };
}

/**
 * How long the event loop of another Node.js process stands still, asked over its inspector: the driver's own metric knows
 * pauses of more than 200 ms only. It needs nothing of the driver, so that older versions can be measured, too.
 */
export class EventLoop implements Disposable {
  readonly #socket: WebSocket;
  readonly #answers = new Map<number, PromiseWithResolvers<unknown>>();
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

  /** The longest pause since the last call, ms. */
  async longestPauseMs(): Promise<number> {
    const nanoseconds = await this.#evaluate(
      '(() => { const { max } = globalThis.benchDelays; globalThis.benchDelays.reset(); return max; })()',
    );
    // Each sample reads as a delay of at least the resolution.
    return Math.max(0, Number(nanoseconds) / 1e6 - resolutionMs);
  }

  [Symbol.dispose](): void {
    this.#socket.close();
  }

  async #evaluate(expression: string): Promise<unknown> {
    const id = ++this.#lastId;
    const answer = Promise.withResolvers<unknown>();
    this.#answers.set(id, answer);
    const params = { expression, returnByValue: true };
    this.#socket.send(JSON.stringify({ id, method: 'Runtime.evaluate', params }));
    return await answer.promise;
  }

  #receive({ id, result }: Answer): void {
    const answer = this.#answers.get(id ?? 0);
    this.#answers.delete(id ?? 0);
    if (result?.exceptionDetails === undefined) answer?.resolve(result?.result?.value);
    else answer?.reject(new Error(`the driver's inspector: ${result.exceptionDetails.text}`));
  }
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
