import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import type { Process } from './simulator.ts';

/** Calls of `node:fs` that change something. */
const changes = [
  'writeFileSync',
  'renameSync',
  'unlinkSync',
  'rmSync',
  'rmdirSync',
  'mkdirSync',
  'writeSync',
  'fchmodSync',
] as const;
/** Those that need room. */
const growing: readonly string[] = ['writeFileSync', 'mkdirSync', 'writeSync'];

export interface DiskUser {
  /** Whose code runs; absent: it is not part of a simulation. */
  process: () => Process | undefined;
  /** The error that a change meets now. */
  error: (isGrowing: boolean) => 'ENOSPC' | 'EIO' | undefined;
  onChange: () => void;
}

/**
 * Makes a point of every change to a file, and lets some of them fail. What is not part of a simulation is not touched.
 * `node:fs` has to be changed for that, since the code under test calls it directly.
 */
export class Disk implements Disposable {
  user: DiskUser | undefined;
  readonly #originals = new Map<string, unknown>();

  constructor() {
    const functions = fs as unknown as Record<string, (...args: unknown[]) => unknown>;
    for (const name of changes) {
      const original = functions[name]!;
      this.#originals.set(name, original);
      functions[name] = (...args) => {
        this.#before(name);
        return original.apply(fs, args);
      };
    }
    syncBuiltinESMExports();
  }

  [Symbol.dispose](): void {
    Object.assign(fs, Object.fromEntries(this.#originals));
    syncBuiltinESMExports();
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
