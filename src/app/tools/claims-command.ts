import type { Command } from 'commander';
import { driverDirs, runTool, type ToolOptions, toolCommand, writeOutput } from './command.ts';

const flags = ['driverName', 'kubeletPluginsDir', 'stateDir', 'attributesDir', 'downwardApiDir'] as const;
type ClaimsOptions = ToolOptions<(typeof flags)[number]>;

/** `netdra claims`: the prepared claims, and where their devices are. */
export function claimsCommand(): Command {
  return toolCommand(
    'claims',
    'list the claims that are prepared on this node, and where their devices are; changes nothing',
    flags,
  ).action((options: ClaimsOptions) => runTool(() => claims(options)));
}

async function claims(options: ClaimsOptions): Promise<void> {
  const { formatClaims, viewClaims } = await import('./claims.ts');
  const { inspectClaim } = await import('../../framework/metadata/index.ts');
  const { openRecords, readStoredClaims } = await import('./stored-claims.ts');
  const { RtnlConnection } = await import('../../node/netlink/index.ts');
  const { dataDir, stateDir } = driverDirs(options);
  const { driverName, attributesDir, downwardApiDir } = options;
  const storePath = `${stateDir}/state.db`;
  using host = RtnlConnection.open();
  using opened = openRecords(storePath, dataDir);
  const view = await viewClaims({
    claims: readStoredClaims(storePath),
    host,
    inspect: (claim) => inspectClaim(driverName, { dataDir, attributesDir, downwardApiDir }, claim, opened.records),
  });
  writeOutput(options, view, formatClaims);
}
