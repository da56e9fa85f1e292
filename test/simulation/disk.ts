import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { MemoryFiles } from './memory-files.ts';
import type { Process } from './simulator.ts';

/** Calls of `node:fs` that change something. */
const changes: readonly string[] = [
  'writeFileSync',
  'renameSync',
  'unlinkSync',
  'rmSync',
  'rmdirSync',
  'mkdirSync',
  'writeSync',
  'fchmodSync',
];
/** Those that need free space. */
const growing: readonly string[] = ['writeFileSync', 'mkdirSync', 'writeSync'];
/** Calls that need a descriptor, or the content of the disk. */
const reads: readonly string[] = ['openSync', 'readFileSync', 'readSync', 'readdirSync', 'lstatSync', 'statSync'];

export interface DiskUser {
  /** The process whose code is running; absent: the code is not part of a simulation. */
  process: () => Process | undefined;
  /** The error of the current change, if any. */
  error: (isGrowing: boolean) => 'ENOSPC' | 'EIO' | undefined;
  /** The error of the current read, if any. */
  readError: () => 'EIO' | 'EMFILE' | undefined;
  onChange: () => void;
}

/**
 * Keeps the files of a simulation in memory, makes every change to one a kill point, and lets some of them fail. Files
 * outside a simulation are not affected. `node:fs` has to be patched for that, since the code under test calls it directly.
 */
export class Disk implements Disposable {
  /** The driver's own text files, by path. */
  readonly texts = new Map<string, string>();
  user: DiskUser | undefined;
  readonly files = new MemoryFiles('/simulated');
  readonly #originals = new Map<string, unknown>();

  constructor() {
    const functions = fs as unknown as Record<string, (...args: unknown[]) => unknown>;
    for (const [name, call] of Object.entries(this.files.calls)) {
      const original = functions[name]!;
      const isChange = changes.includes(name);
      const isRead = reads.includes(name);
      this.#originals.set(name, original);
      functions[name] = (...args) => {
        if (isChange) this.#before(name);
        if (!this.files.owns(args[0])) return original.apply(fs, args);
        if (isRead) this.#beforeRead(name);
        return call(...args);
      };
    }
    syncBuiltinESMExports();
  }

  [Symbol.dispose](): void {
    Object.assign(fs, Object.fromEntries(this.#originals));
    syncBuiltinESMExports();
  }

  #beforeRead(name: string): void {
    const code = this.user?.process() === undefined ? undefined : this.user.readError();
    if (code !== undefined) throw Object.assign(new Error(`${code}: simulated, ${name}`), { code });
  }

  #before(name: string): void {
    const process = this.user?.process();
    if (this.user === undefined || process === undefined) return;
    process.point(name);
    const code = this.user.error(growing.includes(name));
    if (code !== undefined) throw Object.assign(new Error(`${code}: simulated, ${name}`), { code });
    this.user.onChange();
  }
}
