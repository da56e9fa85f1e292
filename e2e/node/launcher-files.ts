import type { LauncherFiles } from '../../test/doubles/kubevirt.ts';
import type { RunningContainer } from './bench.ts';

/** Files of a container as its user sees them. Methods throw an Error with the output of a command that failed. */
export function launcherFiles(container: RunningContainer): LauncherFiles {
  const run = async (...command: string[]) => {
    const { stdout, stderr, exitCode } = await container.exec(...command);
    if (exitCode !== 0) throw new Error(`${command.join(' ')}: ${stderr}`);
    return stdout;
  };
  return { list: async (dir) => (await run('ls', '-A', dir)).trim().split('\n'), read: (path) => run('cat', path) };
}
