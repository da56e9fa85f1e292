import { rmSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { errnoCode } from '../../lib/errors.ts';
import { replaceFile } from '../../lib/replace-file.ts';
import type { ProbeAnswer } from './readiness.ts';

/** Age at which a report no longer counts: its writer was killed. */
const longestAgeMs = 10_000;

/**
 * The readiness of an instance that waits for the address of the one it replaces, in a file that both share. The kubelet
 * probes both pods at that one address. If the old instance answered for both, a new one that cannot connect would count as
 * ready, and the update would end the old one.
 */
export class SuccessorReport {
  readonly #path: string;

  constructor(path: string) {
    this.#path = path;
  }

  /** Reports the answer to probes of this instance. Call it again every few seconds. @throws the Node.js error */
  write({ ready, report }: ProbeAnswer, revision: string | undefined): void {
    replaceFile(this.#path, JSON.stringify({ atMs: monotonicMs(), revision, ready, report }), 0o600, { flush: false });
  }

  /** Removes the report, because this instance now answers probes itself, or ends. @throws the Node.js error */
  remove(): void {
    rmSync(this.#path, { force: true });
  }

  /** Returns the answer for an instance of a revision that waits; `undefined` if none does. @throws the Node.js error */
  async read(of: string): Promise<ProbeAnswer | undefined> {
    const text = await readFile(this.#path, 'utf8').catch((error: unknown) => {
      if (errnoCode(error) === 'ENOENT') return '';
      throw error;
    });
    const found = parse(text);
    if (found === undefined) return undefined;
    const { atMs, revision, ready, report } = found;
    const ageMs = monotonicMs() - atMs;
    // Negative after a reboot.
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
    // Missing, or incomplete after a power loss.
    return undefined;
  }
}

/** The kernel's clock since boot, which all processes of the node share and no correction of the time moves. */
function monotonicMs(): number {
  return Number(process.hrtime.bigint() / 1_000_000n);
}
