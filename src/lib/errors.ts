import { inspect } from 'node:util';
import { printable } from './printable.ts';

export interface ErrorDetails {
  cause?: unknown;
  /** Claim that the error is about, as `namespace/name`. */
  claim?: string | undefined;
  /** Device that the error is about: its name in the pool, or its PCI address. */
  device?: string | undefined;
  /** File, directory or socket that the error is about. */
  path?: string | undefined;
  /** Remedy for the user, as a clause: `start containerd with NRI enabled`. */
  hint?: string | undefined;
  /** Whether the same call may succeed later without human intervention. */
  retriable?: boolean;
}

/**
 * Base class of every error that netdra throws. `code` is for programs and stays stable; the message is for people and says
 * which operation failed on which subject; `cause` keeps the original error.
 */
export class NetdraError<Code extends string = string, Details extends ErrorDetails = ErrorDetails> extends Error {
  readonly code: Code;
  declare readonly claim: string | undefined;
  declare readonly device: string | undefined;
  declare readonly path: string | undefined;
  declare readonly hint: string | undefined;
  readonly retriable: boolean;

  /** Creates an error. @param details become properties of the error; subclasses with further properties declare them */
  constructor(code: Code, message: string, details?: Details) {
    const { cause, retriable = false, ...facts }: ErrorDetails = details ?? {};
    super(message, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    this.code = code;
    this.retriable = retriable;
    Object.assign(this, facts);
  }
}

/** Converts any thrown value to an `Error`: libraries throw strings, objects, and errors of another realm. */
export function toError(thrown: unknown): Error {
  if (thrown instanceof Error) return thrown;
  if (typeof thrown === 'string') return new Error(thrown);
  const message = typeof thrown === 'object' && thrown !== null && 'message' in thrown ? thrown.message : undefined;
  return new Error(typeof message === 'string' ? message : inspect(thrown));
}

/**
 * Returns the messages of an error and its causes and the first hint among them, as shown to users: one line of limited length
 * without control characters. The text is never empty, since an empty text means success in answers to the kubelet.
 */
export function explain(error: unknown): string {
  const messages: string[] = [];
  let hint: string | undefined;
  // Guards against cycles of causes, which drivers and libraries can create.
  const seen = new Set<unknown>();
  for (let current: unknown = error; current !== undefined && current !== null && !seen.has(current); ) {
    seen.add(current);
    const { message: given, name } = toError(current);
    const message = typeof given === 'string' && given.trim() !== '' ? given : name;
    if (messages.at(-1)?.endsWith(message) !== true) messages.push(message);
    if (current instanceof NetdraError) hint ??= current.hint;
    current = current instanceof Error ? current.cause : undefined;
  }
  if (messages.length === 0) messages.push('failed without an error');
  const text = messages.join(': ') + (hint === undefined ? '' : ` (${hint})`);
  // Messages of parsers quote files, and other programs may print any text.
  return printable(text.replaceAll(/\s*\n\s*/g, ' ').trim());
}

const fileHints: Readonly<Record<string, string>> = {
  ENOSPC: 'free space on that file system',
  EROFS: 'the file system is read-only: check the mounts of the driver',
  EACCES: 'the driver needs write access to that directory',
  EIO: 'the disk or its file system fails: see the kernel log',
};

/** Returns the remedy for an error of the kernel about one of the driver's files. */
export function fileHint(error: unknown): string {
  return fileHints[errnoCode(error) ?? ''] ?? 'check this path and its file system; the driver retries';
}

/** Returns the `code` of a Node.js or kernel error (`ENOENT`, …), if it has one. */
export function errnoCode(error: unknown): string | undefined {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : undefined;
}
