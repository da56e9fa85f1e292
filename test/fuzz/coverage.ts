import { readFileSync } from 'node:fs';
import { type Profiler, Session } from 'node:inspector';
import { fileURLToPath } from 'node:url';

/** Which characters of our sources have run, by the URL of the file. */
export type CoveredCode = Map<string, Uint8Array>;

/**
 * What V8 itself knows of the code that ran, block by block. One question costs about a millisecond, so ask after many
 * inputs, not after each. Begin before what is measured is loaded: functions that never ran are known only then.
 */
export class CoverageMeter implements Disposable {
  readonly #session = new Session();
  readonly #rootUrl: string;
  readonly #excludedUrls: readonly string[];
  /** What lies in functions, as far as known: the rest of a file is comments, types and imports. */
  readonly #functions: CoveredCode = new Map();
  readonly #seen: CoveredCode = new Map();

  /**
   * @param rootUrl only files below count
   * @param excluded paths from there that do not count
   */
  constructor(rootUrl: string, excluded: readonly string[]) {
    this.#rootUrl = rootUrl;
    this.#excludedUrls = excluded.map((path) => rootUrl + path);
    this.#session.connect();
    this.#post('Profiler.enable');
    this.#post('Profiler.startPreciseCoverage', { callCount: true, detailed: true });
  }

  /** What ran since the last call. */
  take(): CoveredCode {
    const answer = this.#post('Profiler.takePreciseCoverage') as Profiler.TakePreciseCoverageReturnType;
    const covered: CoveredCode = new Map();
    for (const { url, functions } of answer.result) {
      if (!url.startsWith(this.#rootUrl) || this.#excludedUrls.some((excluded) => url.startsWith(excluded))) continue;
      covered.set(url, paint(functions, this.#functionsOf(url, functions)));
    }
    return covered;
  }

  /** Whether some of this has not run before. */
  isNew(covered: CoveredCode): boolean {
    for (const [url, code] of covered) {
      const seen = this.#seen.get(url);
      if (seen === undefined) return true;
      for (const { start, end } of runsOf(code)) {
        const unseen = seen.indexOf(0, start);
        if (unseen !== -1 && unseen < end) return true;
      }
    }
    return false;
  }

  /** From now on this is not new any more. */
  remember(covered: CoveredCode): void {
    for (const [url, code] of covered) {
      const seen = this.#seen.get(url) ?? new Uint8Array(code.length);
      for (const { start, end } of runsOf(code)) seen.fill(1, start, end);
      this.#seen.set(url, seen);
    }
  }

  /** How much of the code in the functions of these files has run, in per cent. */
  percentOf(paths: readonly string[]): number {
    let all = 0;
    let covered = 0;
    for (const [url, functions] of this.#functions) {
      if (!paths.some((path) => url === this.#rootUrl + path)) continue;
      const seen = this.#seen.get(url);
      for (let at = 0; at < functions.length; at++) {
        all += functions[at]!;
        covered += functions[at]! & (seen?.[at] ?? 0);
      }
    }
    return all === 0 ? 0 : (100 * covered) / all;
  }

  [Symbol.dispose](): void {
    this.#session.disconnect();
  }

  /** The marks of a file's functions, with these added. The module as a whole is one for V8, and none for us. */
  #functionsOf(url: string, functions: Profiler.FunctionCoverage[]): Uint8Array {
    let marks = this.#functions.get(url);
    if (marks === undefined) {
      marks = new Uint8Array(readFileSync(fileURLToPath(url), 'utf8').length);
      this.#functions.set(url, marks);
    }
    for (const { functionName, ranges } of functions) {
      const [whole] = ranges;
      if (whole === undefined || (functionName === '' && whole.startOffset === 0)) continue;
      marks.fill(1, whole.startOffset, whole.endOffset);
    }
    return marks;
  }

  #post(method: string, params: object = {}): unknown {
    let outcome: { error: Error | null; result: unknown } | undefined;
    // Within one thread the answer is there when the call returns.
    this.#session.post(method, params, (error, result) => {
      outcome = { error, result };
    });
    if (outcome === undefined) throw new Error(`the inspector did not answer ${method}`);
    if (outcome.error !== null) throw outcome.error;
    return outcome.result;
  }
}

/** Functions come before those inside of them, and so do ranges: the last one that has a character decides. */
function paint(functions: Profiler.FunctionCoverage[], marks: Uint8Array): Uint8Array {
  const code = new Uint8Array(marks.length);
  for (const { functionName, ranges } of functions) {
    for (const { startOffset, endOffset, count } of ranges) {
      if (functionName === '' && startOffset === 0 && endOffset >= code.length) continue;
      code.fill(count > 0 ? 1 : 0, startOffset, endOffset);
    }
  }
  return code;
}

/** Where there are ones. By searches that V8 does natively: a loop over all characters would be counted itself. */
function* runsOf(code: Uint8Array): Generator<{ start: number; end: number }> {
  for (let start = code.indexOf(1); start !== -1; ) {
    const zero = code.indexOf(0, start);
    const end = zero === -1 ? code.length : zero;
    yield { start, end };
    start = code.indexOf(1, end);
  }
}
