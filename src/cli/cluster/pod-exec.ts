import { PassThrough } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { Exec, type KubeConfig, type V1Status } from '@kubernetes/client-node';
import { NetdraError } from '../../lib/errors.ts';

export interface ExecResult {
  stdout: string;
  stderr: string;
  exitCode: number;
}

export interface ContainerName {
  namespace: string;
  pod: string;
  container: string;
}

const timeoutMs = 120_000;
/**
 * Limit of each output stream, bytes: more than the metadata of all claims of a node, far less than the memory of the user's
 * machine.
 */
const mostOutputBytes = 16 * 1024 * 1024;

/**
 * Runs a command in a container to completion, through the API server.
 * @throws NetdraError `exec-failed` if the command could not be run or its result is unknown
 */
export async function execInPod(config: KubeConfig, name: ContainerName, command: string[]): Promise<ExecResult> {
  const { namespace, pod, container } = name;
  const subject = `${command[0]} in ${namespace}/${pod}/${container}`;
  const fail = (why: string, cause?: unknown, hint?: string) =>
    new NetdraError('exec-failed', `cannot run ${subject}: ${why}`, { cause, hint });
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const output = Promise.all([buffer(stdout), buffer(stderr)]);
  const { promise: ended, resolve, reject } = Promise.withResolvers<V1Status>();
  for (const stream of [stdout, stderr]) limitOutput(stream, () => reject(fail(`more than ${mostOutputBytes} bytes`)));
  const timer = setTimeout(() => reject(fail(`not finished within ${timeoutMs} ms`)), timeoutMs);
  // Both promises are awaited below, but only after the connection is open: an earlier rejection must not count as unhandled.
  for (const each of [ended, output]) each.catch(() => undefined);
  try {
    const exec = new Exec(config);
    const socket = await exec
      .exec(namespace, pod, container, command, stdout, stderr, null, false, resolve)
      .catch((cause) =>
        Promise.reject(fail('no connection', toError(cause), permissionHint(namespace, toError(cause)))),
      );
    socket.onclose = () => reject(fail('the connection was closed before the command had finished'));
    const status = await ended.finally(() => socket.close());
    const [out, err] = await output;
    return { stdout: out.toString(), stderr: err.toString(), exitCode: exitCodeOf(status, fail) };
  } finally {
    clearTimeout(timer);
    stdout.destroy();
    stderr.destroy();
  }
}

/** Ends a stream at its limit: the other side may write endlessly. */
export function limitOutput(stream: PassThrough, onExceeded: () => void, mostBytes = mostOutputBytes): void {
  let bytes = 0;
  stream.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes <= mostBytes) return;
    onExceeded();
    stream.destroy(new Error(`more than ${mostBytes} bytes`));
  });
}

/** Returns the exit code, which the protocol reports as a cause of a failure. Source: k8s.io/apimachinery, `NonZeroExitCode`. */
function exitCodeOf({ status, reason, message, details }: V1Status, fail: (why: string) => Error): number {
  if (status === 'Success') return 0;
  const code = Number(details?.causes?.find((cause) => cause.reason === 'ExitCode')?.message);
  if (reason === 'NonZeroExitCode' && Number.isInteger(code)) return code;
  throw fail(message ?? reason ?? 'the API server gave no reason');
}

/** Converts the event with which a websocket rejects into an error. */
function toError(cause: unknown): unknown {
  return cause instanceof Error ? cause : ((cause as { error?: unknown }).error ?? cause);
}

/** Returns the remedy for a refused handshake, whose error lacks the API server's own message. */
function permissionHint(namespace: string, error: unknown): string | undefined {
  if (!/\b403\b/.test(String(error))) return undefined;
  return `you need the verbs get and create for pods/exec in namespace ${namespace}; they make you root on the nodes of the driver`;
}
