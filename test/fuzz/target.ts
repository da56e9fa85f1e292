/**
 * Something that takes input from outside, in the form in which it is fuzzed. Each file in `targets/` exports one as
 * `target`, under its own name.
 */
export interface FuzzTarget {
  name: string;
  /**
   * What it may throw and nothing else, subclasses included. Plain `Error` means just that: a `TypeError` is one of
   * ours gone wrong. None: it takes every input.
   */
  errors: readonly ErrorClass[];
  /** Inputs to start from, valid ones above all. */
  seeds(): Uint8Array[];
  /** Also checks what came out, and throws if it cannot be right. */
  run(input: Uint8Array): void | Promise<void>;
  /** Source files whose code it is about, from the top of the repository: what the coverage is given for. */
  covers: readonly string[];
  /** `json`: inputs are changed as values, too, not only as bytes. */
  shape?: 'json';
  /** What to put into inputs besides what the seeds have. */
  dictionary?: readonly string[];
  /** Longest input. Default 8 KiB. */
  maxBytes?: number;
  /** It does some hundred runs in a second and no more: files are in it, or waiting. */
  isSlow?: true;
}

/** Abstract constructors too, hence no `new () => Error`. */
export type ErrorClass = { readonly prototype: Error };

/** Thrown by a target that got an answer which cannot be right. */
export class OracleError extends Error {
  override readonly name = 'OracleError';
}

/** @throws OracleError */
export function expectThat(holds: boolean, what: string): asserts holds {
  if (!holds) throw new OracleError(what);
}

/** Whether the error is one of those that the target announces. */
export function isDocumented(error: unknown, classes: readonly ErrorClass[]): boolean {
  return classes.some((each) =>
    each === Error ? error instanceof Error && error.constructor === Error : error instanceof (each as typeof Error),
  );
}

export const utf8 = (input: Uint8Array): string => Buffer.from(input).toString('utf8');

/** The JSON value in an input; `undefined` if it holds none, which is not what a target for values is about. */
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
