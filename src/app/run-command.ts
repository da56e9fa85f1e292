import { Command } from 'commander';
import { flagNames, flagOption, type Settings } from '../instance/settings.ts';
import { explain, NetdraError } from '../lib/errors.ts';
import type { App } from './app.ts';

/** Returns the command `netdra run`, which runs the driver. */
export function runCommand(): Command {
  const command = new Command('run').description('run the driver of this node (kubelet plugin and NRI plugin)');
  for (const name of flagNames) command.addOption(flagOption(name));
  return command.action(runDriver);
}

async function runDriver(settings: Settings): Promise<void> {
  // Imported lazily: the API client alone takes half a second to load, and --help does not need it.
  const { openLog } = await import('./log.ts');
  const log = openLog(settings.logLevel);
  const { logger } = log;
  // One line in one stream, since container logs merge both streams. An error of netdra needs no stack trace.
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
    // During the start, a signal ends the process at once, like a crash. The handler is needed even then: the kernel delivers
    // no unhandled signal to the first process of a container, and a start may wait for NICs and the API server.
    if (app === undefined) process.exit(0);
    app[Symbol.asyncDispose]().then(
      () => process.exit(0),
      (error) => fail(error, 'cannot stop cleanly'),
    );
  };
  process.once('SIGTERM', () => end('SIGTERM'));
  process.once('SIGINT', () => end('SIGINT'));
  const { startApp } = await import('./app.ts');
  app = await startApp(settings, log).catch((error) => fail(error, 'cannot start'));
}
