import { Command } from 'commander';
import { runTool } from './command.ts';

/** `netdra seccomp`: the driver's seccomp profile, for the node. */
export function seccompCommand(): Command {
  return new Command('seccomp')
    .description("print the driver's seccomp profile, or install it where the kubelet looks for profiles")
    .showHelpAfterError('(netdra seccomp --help lists the flags)')
    .option('--install <path>', 'file to write, below the directory seccomp of the kubelet')
    .action(({ install }: { install?: string }) =>
      runTool(async () => {
        const { installProfile, profileText } = await import('./seccomp.ts');
        if (install === undefined) process.stdout.write(profileText);
        else installProfile(install);
      }),
    );
}
