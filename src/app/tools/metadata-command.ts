import type { Command } from 'commander';
import { driverDirs, runTool, type ToolOptions, toolCommand, writeOutput } from './command.ts';

const flags = ['driverName', 'kubeletPluginsDir', 'stateDir', 'attributesDir', 'downwardApiDir'] as const;
type MetadataOptions = ToolOptions<(typeof flags)[number]>;

/** `netdra metadata`: the metadata that containers get. Exit code 1 if anything is wrong with it. */
export function metadataCommand(): Command {
  return toolCommand(
    'metadata',
    'show and check a metadata file, or all files of a claim that is prepared on this node',
    flags,
  )
    .argument('<path|claim>', 'path of a file, or namespace/name of a claim')
    .action((subject: string, options: MetadataOptions) => runTool(() => metadata(subject, options)));
}

async function metadata(subject: string, options: MetadataOptions): Promise<void> {
  const { formatClaimFiles, formatFile, isGood, viewClaimFiles, viewFile } = await import('./metadata.ts');
  const { existsSync } = await import('node:fs');
  const { driverName, attributesDir, downwardApiDir } = options;
  // Names of namespaces and claims have neither slashes nor a leading dot.
  const isClaim = /^[a-z0-9][^/]*\/[^/]+$/.test(subject) && !existsSync(subject);
  if (isClaim) {
    const { openRecords } = await import('./stored-claims.ts');
    const { dataDir, stateDir } = driverDirs(options);
    using opened = openRecords(`${stateDir}/state.db`, dataDir);
    const dirs = { dataDir, attributesDir, downwardApiDir };
    const view = await viewClaimFiles(driverName, dirs, subject, opened.records);
    writeOutput(options, view, formatClaimFiles);
    if (!isGood(view)) process.exitCode = 1;
    return;
  }
  const view = await viewFile(subject);
  writeOutput(options, view, formatFile);
  if (!isGood(view)) process.exitCode = 1;
}
