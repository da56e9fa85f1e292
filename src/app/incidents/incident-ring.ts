import { printable } from '../../lib/printable.ts';
import type { IncidentEntry } from './entry.ts';

/** The memory that a driver has for what has happened lately. */
const ringBytes = 4_000_000;
/** So many entries become text together, between two events of the loop. */
const entriesPerChunk = 512;

interface Chunk {
  bytes: Buffer;
  entries: number;
}

/**
 * The newest entries, in a bounded number of bytes. Adding one keeps a reference to plain data; it becomes escaped text later,
 * off the path of the call that it is about.
 */
export class IncidentRing {
  readonly #maxBytes: number;
  readonly #outline = new Outline();
  #fresh: IncidentEntry[] = [];
  #chunks: Chunk[] = [];
  #bytes = 0;
  #dropped = 0;

  constructor(maxBytes = ringBytes) {
    this.#maxBytes = maxBytes;
  }

  /** How many entries are no longer there. */
  get dropped(): number {
    return this.#dropped;
  }

  /** Of the entries that are text already. */
  get bytes(): number {
    return this.#bytes;
  }

  get last(): IncidentEntry | undefined {
    return this.#fresh.at(-1);
  }

  /** @param entry not to be changed any more, nor what is in it */
  add(entry: IncidentEntry): void {
    if (this.#fresh.push(entry) % entriesPerChunk === 0) setImmediate(() => this.#pack());
  }

  /** All lines, the oldest one first. */
  text(): string {
    this.#pack();
    const lines = Buffer.concat(this.#chunks.map(({ bytes }) => bytes)).toString();
    return this.#dropped === 0
      ? lines
      : `${this.#outline.text()}${lineOf({ is: 'gap', atMs: this.#outline.endMs })}${lines}`;
  }

  #pack(): void {
    const fresh = this.#fresh;
    this.#fresh = [];
    for (let index = 0; index < fresh.length; index += entriesPerChunk) {
      const some = fresh.slice(index, index + entriesPerChunk);
      const bytes = Buffer.from(some.map(lineOf).join(''));
      this.#chunks.push({ bytes, entries: some.length });
      this.#bytes += bytes.length;
      while (this.#bytes > this.#maxBytes && this.#chunks.length > 1) this.#drop(this.#chunks.shift() as Chunk);
    }
  }

  #drop({ bytes, entries }: Chunk): void {
    this.#bytes -= bytes.length;
    this.#dropped += entries;
    for (const line of bytes.toString().trimEnd().split('\n')) this.#outline.add(line);
  }
}

/** Of entries that are dropped, those that say which claims and sandboxes exist afterwards. */
class Outline {
  /** By UID of a claim or id of a sandbox: lines, by what they are. */
  readonly #lines = new Map<string, Map<string, string>>();
  endMs = 0;

  add(line: string): void {
    const entry: IncidentEntry = JSON.parse(line);
    this.endMs = entry.atMs;
    const keep = (key: string) => this.#lines.set(key, (this.#lines.get(key) ?? new Map()).set(entry.is, line));
    if (entry.is === 'prepare') for (const { uid } of entry.claims) keep(uid);
    if (entry.is === 'stored') keep(entry.claim.uid);
    if (entry.is === 'placed') keep(entry.claimUid);
    if (entry.is === 'deleted') this.#lines.delete(entry.claimUid);
    if (entry.is === 'runPodSandbox' || entry.is === 'createContainer') keep(entry.sandbox.id);
    if (entry.is === 'removePodSandbox') this.#lines.delete(entry.sandbox.id);
    if (entry.is === 'synchronize') {
      const listed = new Set(entry.sandboxes.map(({ id }) => id));
      for (const [key, lines] of this.#lines)
        if (lines.has('runPodSandbox') && !listed.has(key)) this.#lines.delete(key);
      this.#lines.set('runtime', new Map([[entry.is, line]]));
    }
  }

  /** A line may be about several claims. */
  text(): string {
    const lines = new Set([...this.#lines.values()].flatMap((each) => [...each.values()]));
    return [...lines].map((line) => `${line}\n`).join('');
  }
}

/** As one line of JSON; texts may be those of tenants. */
export function lineOf(value: object): string {
  return `${JSON.stringify(value, (_key, each) => (typeof each === 'string' ? printable(each) : each))}\n`;
}
