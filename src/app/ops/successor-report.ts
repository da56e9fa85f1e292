import { rmSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { errnoCode } from '../../lib/errors.ts';
import { replaceFile } from '../../lib/replace-file.ts';
import { shared } from '../../lib/shared.ts';
import type { ProbeAnswer } from './readiness.ts';

/** Age after which a report no longer counts, ms: its writer was killed. */
const longestAgeMs = 10_000;

/**
 * A file in which an instance reports its readiness while it waits for the address of the instance that it replaces. The
 * kubelet probes both pods at that one address. If the old instance reported its own readiness for both, a new instance that
 * cannot connect would count as ready, and the rolling update would end the old one.
 */
export class SuccessorReport {
  readonly #path: string;
  /** Reads the file. Concurrent probes share one reading. */
  readonly #readText: () => Promise<string>;

  constructor(path: string) {
    this.#path = path;
    this.#readText = shared(async () => {
      return await readFile(path, 'utf8').catch((error: unknown) => {
        if (errnoCode(error) === 'ENOENT') return '';
        throw error;
      });
    });
  }

  /** Writes the readiness of this instance. Call it again every few seconds. @throws the error of Node.js */
  write({ ready, report }: ProbeAnswer, revision: string | undefined): void {
    replaceFile(this.#path, JSON.stringify({ atMs: monotonicMs(), revision, ready, report }), 0o600, { flush: false });
  }

  /** Removes the report, since this instance now answers probes itself, or ends. @throws the error of Node.js */
  remove(): void {
    rmSync(this.#path, { force: true });
  }

  /** Returns the readiness of a waiting instance of a revision; `undefined` if there is none. @throws the error of Node.js */
  async read(of: string): Promise<ProbeAnswer | undefined> {
    const found = parse(await this.#readText());
    if (found === undefined) return undefined;
    const { atMs, revision, ready, report } = found;
    const ageMs = monotonicMs() - atMs;
    // The age is negative after a reboot.
    if (ageMs < 0 || ageMs > longestAgeMs || revision !== of) return undefined;
    return { ready, report };
  }
}

interface Report extends ProbeAnswer {
  atMs: number;
  revision?: string;
}

function parse(text: string): Report | undefined {
  try {
    return JSON.parse(text);
  } catch {
    // The file is missing, or incomplete after a power loss.
    return undefined;
  }
}

/**
 * Returns the kernel's time since boot, ms. All processes of the node share this clock, and corrections of the time do not
 * change it.
 */
function monotonicMs(): number {
  return Number(process.hrtime.bigint() / 1_000_000n);
}
