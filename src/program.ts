import { Command, type CommanderError } from 'commander';
import packageInfo from '../package.json' with { type: 'json' };
import type { App } from './app/app.ts';
import {
  bundleCommand,
  claimMetadataCommand,
  clusterClaimsCommand,
  nodeDoctorCommand,
  statusCommand,
} from './cli/cluster/commands.ts';
import {
  claimsCommand,
  doctorCommand,
  inventoryCommand,
  logCommand,
  metadataCommand,
  seccompCommand,
  validateCommand,
} from './cli/commands.ts';
import { flagNames, flagOption, type Settings } from './instance/settings.ts';
import { explain, NetdraError } from './lib/errors.ts';

const exitCodes = `
Exit codes: 0 for success; 1 if the command failed, or if a check has found a fault (doctor, metadata, status, validate);
2 for a command line that is not understood.`;

/** The command line of netdra. Commands load their code when they are run: the driver alone takes half a second. */
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
  ]);
}

/** The plugin of kubectl: it looks at the cluster, whereas netdra looks at its node. */
export function createKubectlPlugin(): Command {
  const description = 'netdra in a cluster, seen from outside: its driver, devices and claims';
  return assemble('kubectl netdra', description, [
    statusCommand(),
    clusterClaimsCommand(),
    claimMetadataCommand(),
    nodeDoctorCommand(),
    bundleCommand(),
    validateCommand(),
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

/** Commander has written help, version or the reason. */
function endAfterParsing({ exitCode }: CommanderError): never {
  process.exit(exitCode === 0 ? 0 : 2);
}

/** `netdra run`: the driver. */
function runCommand(): Command {
  const command = new Command('run').description(
    'serve the VFs of this node: kubelet plugin and NRI plugin in one process',
  );
  for (const name of flagNames) command.addOption(flagOption(name));
  return command.action(runDriver);
}

async function runDriver(settings: Settings): Promise<void> {
  // Imported lazily: the API client alone takes half a second to load, and --help does not need it.
  const { openLog } = await import('./app/log.ts');
  const log = openLog(settings.logLevel);
  const { logger } = log;
  // One line, in one of the streams: logs of a container have both. Our own errors need no stack.
  const fail = (error: unknown, message: string): never => {
    if (error instanceof NetdraError || settings.logLevel === 'silent') {
      process.stderr.write(`netdra: ${message}: ${explain(error)}\n`);
    } else {
      logger.fatal({ err: error }, `${message}: ${explain(error)}`);
    }
    process.exit(1);
  };
  // Not SIGUSR1: that starts the debugger of Node.js.
  process.on('SIGUSR2', () => log.toggleDebug());
  process.on('unhandledRejection', (error) => fail(error, 'unexpected failure'));
  process.on('uncaughtException', (error) => fail(error, 'unexpected failure'));
  let app: App | undefined;
  const end = (signal: string) => {
    logger.info({ signal }, 'stopping');
    // A start is interrupted where it is, as by a crash: the kernel does not deliver a signal to the first process of a
    // container that handles none, and a start may wait for cards and for the API server.
    if (app === undefined) process.exit(0);
    app[Symbol.asyncDispose]().then(
      () => process.exit(0),
      (error) => fail(error, 'cannot stop cleanly'),
    );
  };
  process.once('SIGTERM', () => end('SIGTERM'));
  process.once('SIGINT', () => end('SIGINT'));
  const { startApp } = await import('./app/app.ts');
  app = await startApp(settings, log).catch((error) => fail(error, 'cannot start'));
}
