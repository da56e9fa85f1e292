import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import { changedBytes, changedJson } from './inputs.ts';

/** A parser of external input. Each file in `targets/` exports one as `target`, with the name of the file. */
export interface FuzzTarget {
  name: string;
  /**
   * The only errors that `run` may throw, including subclasses. `Error` means only itself: a `TypeError` is a defect.
   * Empty: every input is accepted.
   */
  errors: readonly ErrorClass[];
  /** Inputs to start from, mainly valid ones, in addition to the files in `corpus/`. */
  seeds(): Uint8Array[];
  /** Also checks the result. @throws OracleError if the result is wrong */
  run(input: Uint8Array): void | Promise<void>;
  /** `json`: inputs are also edited as JSON values, not only as bytes. */
  shape?: 'json';
  /** Strings to insert into inputs. */
  dictionary?: readonly string[];
  /** Inputs that are generated instead of edited; a third of all inputs. */
  generated?: fc.Arbitrary<Uint8Array>;
}

/** Includes abstract constructors, hence no `new () => Error`. */
export type ErrorClass = { readonly prototype: Error };

/** Thrown by a target for a wrong result. */
export class OracleError extends Error {
  override readonly name = 'OracleError';
}

/** @throws OracleError */
export function expectThat(holds: boolean, what: string): asserts holds {
  if (!holds) throw new OracleError(what);
}

/** Like isDeepStrictEqual, which overflows the stack for values that JSON.parse accepts: those count as equal. */
export function isSame(left: unknown, right: unknown): boolean {
  try {
    return isDeepStrictEqual(left, right);
  } catch (error) {
    if (error instanceof RangeError) return true;
    throw error;
  }
}

const targetsUrl = new URL('targets/', import.meta.url);
const corpusUrl = new URL('corpus/', import.meta.url);

/** The names of all targets. */
export function targetNames(): string[] {
  return readdirSync(targetsUrl)
    .map((file) => file.replace(/\.ts$/, ''))
    .sort();
}

export const targetUrl = (name: string): URL => new URL(`${name}.ts`, targetsUrl);

export async function loadTarget(name: string): Promise<FuzzTarget> {
  const { target } = (await import(targetUrl(name).href)) as { target: FuzzTarget };
  return target;
}

/** The files in a folder of the corpus; none if the folder does not exist. */
export function corpusFiles(name: string): URL[] {
  const folder = new URL(`${name}/`, corpusUrl);
  if (!existsSync(folder)) return [];
  return readdirSync(folder)
    .sort()
    .map((file) => new URL(file, folder));
}

/** The target's own seeds and its corpus. */
export function samplesOf(target: FuzzTarget): Uint8Array[] {
  return [...target.seeds(), ...corpusFiles(target.name).map((path) => readFileSync(path))];
}

/** Inputs for a target: samples with edits, and generated ones if it has any. */
export function inputsOf(target: FuzzTarget): fc.Arbitrary<Uint8Array> {
  const { dictionary, generated, shape } = target;
  const edited = (shape === 'json' ? changedJson : changedBytes)(samplesOf(target), dictionary);
  if (generated === undefined) return edited;
  return fc.oneof({ weight: 2, arbitrary: edited }, { weight: 1, arbitrary: generated });
}

/** Limit of CPU time for one input, which a target may run several times, on a machine with other users. */
const maxInputCpuMs = 10_000;

/**
 * Runs one input.
 * @returns whether it was accepted, that is, no error was thrown
 * @throws errors that the target does not announce, or OracleError: wrong result, changed prototype, too much CPU time
 */
export async function checkInput(target: FuzzTarget, input: Uint8Array): Promise<boolean> {
  const before = process.threadCpuUsage();
  let isAccepted = true;
  try {
    // A copy, so that a target that writes to its input does not change the samples.
    await target.run(Uint8Array.from(input));
  } catch (error) {
    if (!isAnnounced(error, target.errors)) throw error;
    isAccepted = false;
  }
  removePollution();
  const { user, system } = process.threadCpuUsage(before);
  const cpuMs = Math.round((user + system) / 1000);
  expectThat(cpuMs <= maxInputCpuMs, `one input took ${cpuMs} ms of CPU time`);
  return isAccepted;
}

/** Whether the error is one of those announced by the target. */
export function isAnnounced(error: unknown, classes: readonly ErrorClass[]): boolean {
  return classes.some((each) =>
    each === Error ? error instanceof Error && error.constructor === Error : error instanceof (each as typeof Error),
  );
}

const shared = [Object.prototype, Array.prototype].map((prototype) => ({
  prototype: prototype as unknown as Record<string, unknown>,
  names: new Set(Object.getOwnPropertyNames(prototype)),
}));

/** Removes members that an input added to the shared prototypes of all objects. @throws OracleError with their names */
function removePollution(): void {
  for (const { prototype, names } of shared) {
    const all = Object.getOwnPropertyNames(prototype);
    if (all.length === names.size) continue;
    const added = all.filter((name) => !names.has(name));
    for (const name of added) delete prototype[name];
    throw new OracleError(`a shared prototype got ${added.join(', ')}`);
  }
}

export const utf8 = (input: Uint8Array): string => Buffer.from(input).toString('utf8');

/** The JSON value in an input; `undefined` for other text, which targets for values skip. */
export function parseJson(input: Uint8Array): unknown {
  try {
    return JSON.parse(utf8(input));
  } catch {
    return undefined;
  }
}

/** JSON texts as inputs. */
export const jsonSeeds = (...values: unknown[]): Uint8Array[] =>
  values.map((value) => Buffer.from(JSON.stringify(value)));
