import { cacheFolder } from '../../scripts/packages/cache-folder.ts';
import { runCommand } from '../../scripts/run-command.ts';
import { explain, NetdraError } from '../../src/lib/errors.ts';
import { fetchClusterPrograms, type ProgramChoice, toEnv } from './programs.ts';

export const print = (line: string) => console.error(`netdra: ${line}`);

/**
 * Fetches and builds the parts of a real cluster, and runs a command on a separate node with access to them.
 * @param options.env variables in addition to those of this process
 * @param options.show whether the output is also printed as it arrives; default true
 * @returns the command's output, and whether all of it succeeded
 */
export async function runOnCluster(
  choice: ProgramChoice,
  command: readonly string[],
  { env = {}, show = true }: { env?: Record<string, string>; show?: boolean } = {},
) {
  const failure = { output: '', succeeded: false };
  try {
    const programs = await fetchClusterPrograms(cacheFolder(process.env), choice, print);
    const tools = await runCommand(['bash', 'scripts/fetch-tools.sh'], {}, show);
    if (!tools.succeeded) return failure;
    return await runCommand(['bash', 'scripts/in-node.sh', ...command], { ...toEnv(programs), ...env }, show);
  } catch (error) {
    if (!(error instanceof NetdraError)) throw error;
    print(explain(error));
    return failure;
  }
}
