import { Command } from 'commander';
import { runCommand } from './run-command.ts';
import { claimsCommand, doctorCommand, inventoryCommand, metadataCommand } from './tools/index.ts';

// Commands load what they need when they are run: the driver alone takes half a second, which the others do without.
const program = new Command('netdra')
  .description('Kubernetes network DRA driver for SR-IOV and DPDK')
  .showHelpAfterError('(netdra --help lists the commands)')
  .addCommand(runCommand())
  .addCommand(doctorCommand())
  .addCommand(inventoryCommand())
  .addCommand(claimsCommand())
  .addCommand(metadataCommand());

await program.parseAsync();
