import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';

/** The root folder of the repository. */
export const repository = fileURLToPath(new URL('..', import.meta.url));

export interface CommandResult {
  /** Its output, stdout and stderr. */
  output: string;
  /** Whether it exited with 0. */
  succeeded: boolean;
}

/**
 * Runs a command in the root folder of the repository to completion, and captures its output.
 * @param env variables in addition to those of this process
 * @param show whether the output is also printed as it arrives, or what gets it then
 * @throws Error of spawn(2)
 */
export async function runCommand(
  [program = '', ...args]: readonly string[],
  env: Record<string, string> = {},
  show: boolean | ((chunk: Buffer) => void) = false,
): Promise<CommandResult> {
  const child = spawn(program, args, {
    cwd: repository,
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const chunks: Buffer[] = [];
  for (const [source, target] of [
    [child.stdout, process.stdout],
    [child.stderr, process.stderr],
  ] as const) {
    source.on('data', (chunk: Buffer) => {
      chunks.push(chunk);
      if (typeof show === 'function') show(chunk);
      else if (show) target.write(chunk);
    });
  }
  const { promise, resolve, reject } = Promise.withResolvers<number | null>();
  child.once('error', reject).once('close', resolve);
  const code = await promise;
  return { output: Buffer.concat(chunks).toString(), succeeded: code === 0 };
}
