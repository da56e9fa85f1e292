import { Command } from 'commander';
import { commonOptions } from '../command-options.ts';
import { type DirOptions, driverDirs, type OutputOptions, runTool, writeOutput } from './command.ts';

type Flags = OutputOptions & DirOptions & { attributesDir: string; downwardApiDir: string };

/** `netdra metadata`: the metadata that containers get. Exit code 1 if anything is wrong with it. */
export function metadataCommand(): Command {
  return new Command('metadata')
    .description('show and check a metadata file, or all files of a claim that is prepared on this node')
    .showHelpAfterError('(netdra metadata --help lists the flags)')
    .argument('<path|claim>', 'path of a file, or namespace/name of a claim')
    .addOption(commonOptions.output())
    .addOption(commonOptions.driverName())
    .addOption(commonOptions.kubeletPluginsDir())
    .addOption(commonOptions.attributesDir())
    .addOption(commonOptions.downwardApiDir())
    .action((subject: string, flags: Flags) => runTool(() => metadata(subject, flags)));
}

async function metadata(subject: string, flags: Flags): Promise<void> {
  const { formatClaimFiles, formatFile, isGood, viewClaimFiles, viewFile } = await import('./metadata.ts');
  const { existsSync } = await import('node:fs');
  const { driverName, attributesDir, downwardApiDir } = flags;
  // Names of namespaces and claims have neither slashes nor a leading dot.
  const isClaim = /^[a-z0-9][^/]*\/[^/]+$/.test(subject) && !existsSync(subject);
  if (isClaim) {
    const dirs = { dataDir: driverDirs(flags).dataDir, attributesDir, downwardApiDir };
    const view = await viewClaimFiles(driverName, dirs, subject);
    writeOutput(flags, view, formatClaimFiles);
    if (!isGood(view)) process.exitCode = 1;
    return;
  }
  const view = await viewFile(subject);
  writeOutput(flags, view, formatFile);
  if (!isGood(view)) process.exitCode = 1;
}
