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
/** Those that need free space. */
const growing: readonly string[] = ['writeFileSync', 'mkdirSync', 'writeSync'];

export interface DiskUser {
  /** The process whose code is running; absent: the code is not part of a simulation. */
  process: () => Process | undefined;
  /** The error of the current change, if any. */
  error: (isGrowing: boolean) => 'ENOSPC' | 'EIO' | undefined;
  onChange: () => void;
}

/**
 * Makes every change to a file a kill point, and lets some of them fail. Files outside a simulation are not affected.
 * `node:fs` has to be patched for that, since the code under test calls it directly.
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
