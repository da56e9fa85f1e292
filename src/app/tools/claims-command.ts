import { Command } from 'commander';
import { commonOptions } from '../command-options.ts';
import { type DirOptions, driverDirs, type OutputOptions, runTool, writeOutput } from './command.ts';

type Flags = OutputOptions & DirOptions & { attributesDir: string; downwardApiDir: string };

/** `netdra claims`: the prepared claims, and where their devices are. */
export function claimsCommand(): Command {
  return new Command('claims')
    .description('list the claims that are prepared on this node, and where their devices are; changes nothing')
    .showHelpAfterError('(netdra claims --help lists the flags)')
    .addOption(commonOptions.output())
    .addOption(commonOptions.driverName())
    .addOption(commonOptions.kubeletPluginsDir())
    .addOption(commonOptions.stateDir())
    .addOption(commonOptions.attributesDir())
    .addOption(commonOptions.downwardApiDir())
    .action((flags: Flags) => runTool(() => claims(flags)));
}

async function claims(flags: Flags): Promise<void> {
  const { formatClaims, viewClaims } = await import('./claims.ts');
  const { inspectClaim } = await import('../../framework/metadata/index.ts');
  const { readStoredClaims } = await import('./stored-claims.ts');
  const { RtnlConnection } = await import('../../node/netlink/index.ts');
  const { dataDir, stateDir } = driverDirs(flags);
  const { driverName, attributesDir, downwardApiDir } = flags;
  using host = RtnlConnection.open();
  const view = await viewClaims({
    claims: readStoredClaims(`${stateDir}/state.db`),
    host,
    inspect: (claim) => inspectClaim(driverName, { dataDir, attributesDir, downwardApiDir }, claim),
  });
  writeOutput(flags, view, formatClaims);
}
