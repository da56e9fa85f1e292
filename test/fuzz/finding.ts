import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/**
 * - `crash`: an error came out that the target does not announce, or the process-wide prototypes were changed
 * - `hang`: one input took more than the CPU time that one may take
 * - `stuck`: no end came, and nothing was computed either
 * - `memory`: one input needed more memory than the thread has
 * - `leak`: memory is not given back; no single input shows it
 */
export type FindingKind = 'crash' | 'hang' | 'stuck' | 'memory' | 'leak';

export interface Finding {
  target: string;
  kind: FindingKind;
  message: string;
  /** Of a leak: the last one that was run. */
  input: Uint8Array;
  /** Of the run in which it was found. */
  seed: number;
}

/** Where the inputs of findings go, from the top of the repository. */
export const findingsDir = '.cache/fuzz';

/** Longest input that is printed, and not only written into a file. */
const maxPrintedBytes = 400;
const inlinePrefix = 'base64:';

/**
 * Writes the input of a finding to a file.
 * @returns the command that shows it again; short inputs are in it, so that the log of a CI run is enough
 */
export function saveFinding({ target, kind, input, seed }: Finding, dir: string): string {
  if (kind === 'leak') return `npm run fuzz -- --target ${target} --seed ${seed}`;
  const hash = createHash('sha256').update(input).digest('hex').slice(0, 10);
  mkdirSync(dir, { recursive: true });
  const path = join(dir, `${target}-${hash}`);
  writeFileSync(path, input);
  const where = input.length > maxPrintedBytes ? path : inlinePrefix + Buffer.from(input).toString('base64');
  return `npm run fuzz -- --target ${target} --replay ${where}`;
}

/** What `--replay` names: a file, or the input itself. */
export function readReplay(text: string): Uint8Array {
  if (!text.startsWith(inlinePrefix)) return readFileSync(text);
  return Buffer.from(text.slice(inlinePrefix.length), 'base64');
}
