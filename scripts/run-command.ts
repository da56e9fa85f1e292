import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';

/** The top folder of the repository. */
export const repository = fileURLToPath(new URL('..', import.meta.url));

export interface CommandResult {
  /** What it printed, to stdout and stderr. */
  output: string;
  /** Whether it ended with 0. */
  succeeded: boolean;
}

/**
 * Runs a command in the top folder of the repository, to its end, and keeps what it prints.
 * @param env more than this process has
 * @param show whether the output is printed as it comes, too
 * @throws Error of spawn(2)
 */
export async function runCommand(
  [program = '', ...args]: readonly string[],
  env: Record<string, string> = {},
  show = false,
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
      if (show) target.write(chunk);
    });
  }
  const { promise, resolve, reject } = Promise.withResolvers<number | null>();
  child.once('error', reject).once('close', resolve);
  const code = await promise;
  return { output: Buffer.concat(chunks).toString(), succeeded: code === 0 };
}
