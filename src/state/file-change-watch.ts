import { type FSWatcher, watch } from 'node:fs';

/** Whether a file may have changed since the last call of `takeChange`. */
export interface ChangeWatch extends Disposable {
  takeChange(): boolean;
}

/**
 * Tells whether a file was written to, by whatever process, without asking the file: the kernel says so of its own
 * accord, and the event loop takes that word before anything that happened later.
 */
export class FileChangeWatch implements ChangeWatch {
  #watcher: FSWatcher | undefined;
  #changed = true;

  /** @param path of a file that is there. One that cannot be watched counts as changed at any time. */
  constructor(path: string) {
    try {
      this.#watcher = watch(path, { persistent: false }, (event) => {
        this.#changed = true;
        // Another file is in its place, or none: nobody tells what happens to that one.
        if (event === 'rename') this[Symbol.dispose]();
      });
      this.#watcher.on('error', () => this[Symbol.dispose]());
    } catch {
      // Nodes often are at their limit of watches.
    }
  }

  /** Whether the file may have changed since the last call. */
  takeChange(): boolean {
    if (this.#watcher === undefined) return true;
    const changed = this.#changed;
    this.#changed = false;
    return changed;
  }

  [Symbol.dispose](): void {
    this.#watcher?.close();
    this.#watcher = undefined;
  }
}
