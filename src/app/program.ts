import { Command } from 'commander';
import packageInfo from '../../package.json' with { type: 'json' };
import { runCommand } from './run-command.ts';
import { claimsCommand, doctorCommand, inventoryCommand, metadataCommand, seccompCommand } from './tools/commands.ts';

/** The command line of netdra. Commands load their code when they are run: the driver alone takes half a second. */
export function createProgram(): Command {
  return new Command('netdra')
    .description('Kubernetes network DRA driver for SR-IOV and DPDK')
    .version(packageInfo.version)
    .showHelpAfterError('(netdra --help lists the commands)')
    .addCommand(runCommand())
    .addCommand(doctorCommand())
    .addCommand(inventoryCommand())
    .addCommand(claimsCommand())
    .addCommand(metadataCommand())
    .addCommand(seccompCommand());
}
