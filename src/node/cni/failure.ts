import { errnoCode } from '../../lib/errors.ts';
import { printable } from '../../lib/printable.ts';
import { CniError, type CniErrorDetails, hintForPluginCode, isTransientPluginCode } from './errors.ts';
import { type ExecOutcome, maxStdoutBytes } from './exec.ts';
import { isObject } from './network.ts';

/** Limit for a plugin's own words in messages and logs. */
const maxSaidLength = 1_024;

/** Describes a plugin call in its errors. */
export interface CallSubject extends CniErrorDetails {
  network: string;
  plugin: string;
  command: 'ADD' | 'DEL';
  /** Absolute path of the plugin's program. */
  path: string;
  /** `net1 of container 4f1c…`. */
  target: string;
}

/** `plugin tuning of CNI network fast failed to ADD net1 of container 4f1c…`. */
function describeCall({ plugin, network, command, target }: CallSubject): string {
  return `plugin ${plugin} of CNI network ${network} failed to ${command} ${target}`;
}

/** The failure of a call; `undefined` if it succeeded: the plugin ended with 0 and printed no error. */
export function findFailure(outcome: ExecOutcome, subject: CallSubject): CniError | undefined {
  const { exitCode, endedBy, overflowed, stderr } = outcome;
  const details = { ...subject, stderr };
  if (overflowed) {
    const message = `${describeCall(subject)}: it printed more than ${maxStdoutBytes} bytes and was killed`;
    return new CniError('cni-output-invalid', message, details);
  }
  const reported = parsePluginError(outcome.stdout);
  if (reported !== undefined) return reportedFailure(reported, subject, stderr);
  if (exitCode === 0) return undefined;
  const how = exitCode === null ? `was ended by ${endedBy ?? 'an unknown cause'}` : `ended with exit code ${exitCode}`;
  const said = lastLine(stderr) ?? lastLine(outcome.stdout);
  const message = `${describeCall(subject)}: it ${how}${said === undefined ? ' and said nothing' : `: ${said}`}`;
  // A signal is not the plugin's own decision: the kernel may have sent it, out of memory.
  return new CniError('cni-plugin-failed', message, { ...details, retriable: exitCode === null });
}

/** @param waitedMs how long the plugin ran; absent if it was not started */
export function timeoutFailure(
  subject: CallSubject,
  { waitedMs, stderr, cause }: { waitedMs?: number; stderr?: string; cause: unknown },
): CniError {
  const outcome =
    waitedMs === undefined
      ? 'no time was left for it'
      : `it was not done after ${Math.round(waitedMs)} ms and was killed`;
  const message = `${describeCall(subject)}: ${outcome}`;
  return new CniError('cni-timeout', message, {
    ...subject,
    cause,
    stderr,
    retriable: true,
    hint: 'look at what the plugin waits for: its daemon, a lease, a device',
  });
}

/** The program could not be started. */
export function startFailure(subject: CallSubject, cause: unknown): CniError {
  const hints: Record<string, string> = {
    ENOENT: 'the plugin, or the interpreter in its first line, is gone: install it again',
    EACCES: 'make the plugin executable, and its file system mounted without noexec',
    ENOEXEC: 'install a plugin that is built for this machine',
    ETXTBSY: 'the plugin is being written: try again when it is installed',
  };
  const errno = errnoCode(cause) ?? '';
  const retriable = ['ETXTBSY', 'EAGAIN', 'ENOMEM', 'EMFILE'].includes(errno);
  const hint = hints[errno];
  return new CniError('cni-plugin-missing', `${describeCall(subject)}: ${subject.path} cannot be started`, {
    ...subject,
    cause,
    retriable,
    hint,
  });
}

interface PluginError {
  code: number;
  msg: string;
  details: string;
}

/** The error that a plugin printed; a plugin that prints an error and ends with 0 has failed as well. */
function parsePluginError(stdout: string): PluginError | undefined {
  let value: unknown;
  try {
    value = JSON.parse(stdout);
  } catch {
    return undefined;
  }
  if (!isObject(value)) return undefined;
  const { code, msg, details } = value;
  if (typeof code !== 'number' || code === 0 || typeof msg !== 'string') return undefined;
  return { code, msg, details: typeof details === 'string' ? details : '' };
}

function reportedFailure(error: PluginError, subject: CallSubject, stderr: string): CniError {
  const { code } = error;
  const [msg, details] = [error.msg, error.details].map((text) => printable(text, maxSaidLength)) as [string, string];
  const hint = hintForPluginCode(code);
  const said = [msg, details].filter((part) => part !== '').join('; ');
  return new CniError('cni-plugin-failed', `${describeCall(subject)}: ${said} (code ${code})`, {
    ...subject,
    pluginCode: code,
    pluginMessage: msg,
    pluginDetails: details,
    stderr,
    retriable: isTransientPluginCode(code),
    hint,
  });
}

function lastLine(text: string): string | undefined {
  const line = text.trim().split('\n').at(-1);
  return line ? printable(line, 300) : undefined;
}
