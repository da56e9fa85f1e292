import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import type { IpLink } from '../../ip-link.ts';

/**
 * Prints the addresses of `net1` of each network namespace with it, for some 20 s: the shell may outlive the program that started it.
 * A line has the time before and after the kernel was asked. It ends with a mark, since a node that is killed may leave a line
 * unfinished.
 */
const script = `for round in {1..50}; do
  for path in /run/netns/*; do
    before=$EPOCHREALTIME
    links=$(nsenter --net=$path ip -json address show dev net1 2>/dev/null) && echo "$before $EPOCHREALTIME \${path##*/} $links end"
  done
  sleep 0.4
done`;

/** When a namespace had an address for certain, in seconds: from the end of the first reading to the start of the last one. */
interface Period {
  from: number;
  to: number;
}

/** Asks the kernel, all the time, which network namespaces of several nodes have an interface `net1` with which addresses. */
export class AddressWatch implements AsyncDisposable {
  readonly #engine: string;
  readonly #loops: Promise<void>[];
  readonly #running = new Set<ChildProcess>();
  /** By address, and by node and namespace. */
  readonly #periods = new Map<string, Map<string, Period>>();
  #isEnded = false;

  constructor(engine: string, nodes: readonly string[]) {
    this.#engine = engine;
    this.#loops = nodes.map((node) => this.#follow(node));
    // Disposing reports failures.
    for (const loop of this.#loops) loop.catch(() => undefined);
  }

  /** Number of namespaces that have had an address, one after the other or at the same time. */
  holdersOf(address: string): number {
    return this.#periods.get(address)?.size ?? 0;
  }

  /** Describes each pair of namespaces that had an address at the same time. */
  overlaps(): string[] {
    return [...this.#periods].flatMap(([address, holders]) => {
      const certain = [...holders].filter(([, { from, to }]) => from < to);
      const inTurn = certain.sort(([, one], [, other]) => one.from - other.from);
      return inTurn.flatMap(([holder, { to }], index) =>
        inTurn
          .slice(index + 1)
          .filter(([, later]) => later.from < to)
          .map(([other, { from }]) => `${address}: ${holder} until ${to}, ${other} from ${from}`),
      );
    });
  }

  /** Ends the watch. @throws Error if the container engine could not be started */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#isEnded = true;
    for (const child of this.#running) child.kill();
    await Promise.all(this.#loops);
  }

  /** Goes on after the node was killed and started again. */
  async #follow(node: string): Promise<void> {
    while (!this.#isEnded) {
      const child = spawn(this.#engine, ['exec', node, 'bash', '-c', script], { stdio: ['ignore', 'pipe', 'ignore'] });
      this.#running.add(child);
      await Promise.all([once(child, 'close'), this.#noteAll(node, child.stdout)]);
      this.#running.delete(child);
      await sleep(100);
    }
  }

  async #noteAll(node: string, input: Readable): Promise<void> {
    for await (const line of createInterface({ input })) this.#note(node, line);
  }

  #note(node: string, line: string): void {
    const [, before = '', after = '', namespace = '', links = '[]'] = /^(\S+) (\S+) (\S+) (.*) end$/.exec(line) ?? [];
    const addresses = (JSON.parse(links) as IpLink[]).flatMap(({ addr_info = [] }) => addr_info);
    for (const { local, scope } of addresses) {
      if (scope !== 'global') continue;
      const holders = this.#periods.get(local) ?? new Map<string, Period>();
      this.#periods.set(local, holders);
      const holder = `${node} ${namespace}`;
      const { from } = holders.get(holder) ?? { from: Number(after) };
      holders.set(holder, { from, to: Number(before) });
    }
  }
}
