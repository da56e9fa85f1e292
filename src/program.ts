import { Command, type CommanderError } from 'commander';
import packageInfo from '../package.json' with { type: 'json' };
import { runCommand } from './app/run-command.ts';
import {
  bundleCommand,
  claimMetadataCommand,
  clusterClaimsCommand,
  nodeDoctorCommand,
  statusCommand,
} from './cli/cluster/commands.ts';
import {
  claimsCommand,
  completionCommand,
  convertCommand,
  doctorCommand,
  inventoryCommand,
  logCommand,
  metadataCommand,
  seccompCommand,
  validateCommand,
} from './cli/commands.ts';

const exitCodes = `
Exit codes: 0: success; 1: the command failed, found a problem (doctor, metadata, status, validate),
or could not convert everything (convert); 2: the command line is invalid.`;

/**
 * Creates the command line of netdra. Commands import their code when they run: the driver's code alone takes half a second.
 */
export function createProgram(): Command {
  const description = 'Kubernetes network DRA driver for SR-IOV and DPDK';
  return assemble('netdra', description, [
    runCommand(),
    doctorCommand(),
    inventoryCommand(),
    claimsCommand(),
    metadataCommand(),
    seccompCommand(),
    logCommand(),
    statusCommand(),
    validateCommand(),
    convertCommand(),
    completionCommand('bash', 'zsh', 'fish'),
  ]);
}

/** Creates the kubectl plugin. It reads from the cluster, whereas netdra's tools read from their node. */
export function createKubectlPlugin(): Command {
  const description = 'inspect the driver, devices and claims of a cluster';
  return assemble('kubectl netdra', description, [
    statusCommand(),
    clusterClaimsCommand(),
    claimMetadataCommand(),
    nodeDoctorCommand(),
    bundleCommand(),
    validateCommand(),
    convertCommand(),
    completionCommand('kubectl'),
  ]);
}

function assemble(name: string, description: string, commands: Command[]): Command {
  const program = new Command(name)
    .description(description)
    .version(packageInfo.version)
    .showHelpAfterError(`(${name} --help lists the commands)`)
    .addHelpText('afterAll', exitCodes);
  for (const command of commands) {
    command.showHelpAfterError(`(${name} ${command.name()} --help lists the flags)`).exitOverride(endAfterParsing);
    program.addCommand(command);
  }
  return program.exitOverride(endAfterParsing);
}

/** Ends the process after commander has written help, version or an error. */
function endAfterParsing({ exitCode }: CommanderError): never {
  process.exit(exitCode === 0 ? 0 : 2);
}
