import { errnoCode } from '../../lib/errors.ts';
import { printable } from '../../lib/printable.ts';
import { CniError, type CniErrorDetails, pluginCodeHints, transientPluginCodes } from './errors.ts';
import { type ExecOutcome, maxStdoutBytes } from './exec.ts';
import { isObject } from './network.ts';

/** Maximum length of a plugin's message in errors and logs, in UTF-16 units. */
const maxSaidLength = 1_024;

/** Subject of a plugin call, for its errors. */
export interface CallSubject extends CniErrorDetails {
  network: string;
  plugin: string;
  command: 'ADD' | 'DEL';
  /** Absolute path of the plugin's executable. */
  path: string;
  /** Attachment as text: `net1 of container 4f1c…`. */
  target: string;
}

/** Describes a failed call: `plugin tuning of CNI network fast failed to ADD net1 of container 4f1c…`. */
function describeCall({ plugin, network, command, target }: CallSubject): string {
  return `plugin ${plugin} of CNI network ${network} failed to ${command} ${target}`;
}

/** Returns the error of a call; `undefined` if it succeeded: the plugin ended with 0 and printed no error. */
export function findFailure(outcome: ExecOutcome, subject: CallSubject): CniError | undefined {
  const { exitCode, endedBy, overflowed, stderr } = outcome;
  const details = { ...subject, stderr };
  if (overflowed) {
    const message = `${describeCall(subject)}: it printed more than ${maxStdoutBytes} bytes and was killed`;
    return new CniError('cni-output-invalid', message, details);
  }
  const reported = reportedFailure(outcome.stdout, subject, stderr);
  if (reported !== undefined) return reported;
  if (exitCode === 0) return undefined;
  const how = exitCode === null ? `was ended by ${endedBy ?? 'an unknown cause'}` : `ended with exit code ${exitCode}`;
  const output = lastLine(stderr) ?? lastLine(outcome.stdout);
  const message = `${describeCall(subject)}: it ${how}${output === undefined ? ' and printed nothing' : `: ${output}`}`;
  // An end by a signal is retriable: the kernel may have sent the signal because it was out of memory.
  return new CniError('cni-plugin-failed', message, { ...details, retriable: exitCode === null });
}

/**
 * Returns the error for a plugin that had too little time. @param waitedMs how long the plugin ran, ms; absent if it was not
 * started
 */
export function timeoutFailure(
  subject: CallSubject,
  { waitedMs, stderr, cause }: { waitedMs?: number; stderr?: string; cause: unknown },
): CniError {
  const wasKilled = `it had not ended after ${Math.round(waitedMs ?? 0)} ms and was killed`;
  const outcome = waitedMs === undefined ? 'no time was left to call it' : wasKilled;
  const hint = 'look at what the plugin waits for: its daemon, a lease, a device';
  const details = { ...subject, cause, stderr, retriable: true, hint };
  return new CniError('cni-timeout', `${describeCall(subject)}: ${outcome}`, details);
}

/** Returns the error for a program that could not be started. */
export function startFailure(subject: CallSubject, cause: unknown): CniError {
  const hints: Record<string, string> = {
    ENOENT: 'the plugin, or the interpreter in its first line, is gone: install it again',
    EACCES: 'make the plugin executable, and mount its file system without noexec',
    ENOEXEC: 'install a plugin that is built for this machine',
    ETXTBSY: 'the plugin is being written: try again when it is installed',
  };
  const errno = errnoCode(cause) ?? '';
  const retriable = ['ETXTBSY', 'EAGAIN', 'ENOMEM', 'EMFILE'].includes(errno);
  const message = `${describeCall(subject)}: ${subject.path} cannot be started`;
  return new CniError('cni-plugin-missing', message, { ...subject, cause, retriable, hint: hints[errno] });
}

/** Returns the error that a plugin has printed. It counts even if the plugin ends with 0. */
function reportedFailure(stdout: string, subject: CallSubject, stderr: string): CniError | undefined {
  let value: unknown;
  try {
    value = JSON.parse(stdout);
  } catch {
    return undefined;
  }
  if (!isObject(value) || typeof value.code !== 'number' || value.code === 0) return undefined;
  if (typeof value.msg !== 'string') return undefined;
  const { code } = value;
  const pluginMessage = printable(value.msg, maxSaidLength);
  const pluginDetails = typeof value.details === 'string' ? printable(value.details, maxSaidLength) : '';
  const reason = [pluginMessage, pluginDetails].filter((part) => part !== '').join('; ');
  const words = { pluginCode: code, pluginMessage, pluginDetails, stderr };
  const advice = { retriable: transientPluginCodes.includes(code), hint: pluginCodeHints[code] };
  const message = `${describeCall(subject)}: ${reason} (code ${code})`;
  return new CniError('cni-plugin-failed', message, { ...subject, ...words, ...advice });
}

function lastLine(text: string): string | undefined {
  const line = text.trim().split('\n').at(-1);
  return line ? printable(line, 300) : undefined;
}
