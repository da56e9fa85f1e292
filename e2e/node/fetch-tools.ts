/**
 * Provides the programs of a node, and prints shell code that makes them available:
 * `node e2e/node/fetch-tools.ts CACHE_FOLDER`. Called by scripts/in-node.sh, which prevents concurrent runs.
 */
import { resolve } from 'node:path';
import { buildGate, programsFolder } from '../../programs/build.ts';
import { findCompiler, findMuslCompiler, ToolchainError } from '../../programs/toolchain.ts';
import { cacheFolder } from '../../scripts/packages/cache-folder.ts';
import { fetchDebianPackages } from '../../scripts/packages/debian-packages.ts';
import { ensureProgram } from '../../scripts/packages/debian-programs.ts';
import { containerdVersion, findFolderWith, pathFolders } from '../../scripts/packages/host-programs.ts';
import { explain, NetdraError } from '../../src/lib/errors.ts';
import { type ContainerdSeries, containerdSeries, findTool, ToolError, toolSources } from './tools.ts';

const log = (line: string) => console.error(`netdra: ${line}`);

function main(cacheDir: string, env: NodeJS.ProcessEnv): void {
  fetchRuntime(cacheDir, env);
  const ipFolder = ensureProgram('ip', cacheDir, env, log);
  buildGateIfPossible(cacheDir, env);
  console.log(`export NETDRA_CACHE=${quote(cacheDir)}`);
  if (!pathFolders(env.PATH).includes(ipFolder)) console.log(`export PATH=${quote(ipFolder)}:"$PATH"`);
}

function fetchRuntime(cacheDir: string, env: NodeJS.ProcessEnv): void {
  const sources = toolSources(env);
  const missing = Object.values(sources).filter((source) => findTool(source, cacheDir) === undefined);
  fetchDebianPackages(
    cacheDir,
    missing.map((source) => source.package),
    log,
  );
  for (const series of containerdSeries) {
    if (missing.includes(sources[series])) checkItRuns(series, findTool(sources[series], cacheDir));
  }
}

/** Not every user of the demo has a compiler: the start gate is optional. */
function buildGateIfPossible(cacheDir: string, env: NodeJS.ProcessEnv): void {
  const absent = ['gcc', 'make'].filter((name) => findFolderWith(pathFolders(env.PATH), [name]) === undefined);
  if (absent.length > 0) {
    log(`${absent.join(' and ')} not in PATH: netdra-gate, which containers wait in, is not built`);
    return;
  }
  buildGate({ outDir: programsFolder(cacheDir, 'static'), cacheDir, compiler: gateCompiler(cacheDir, env), env, log });
}

/** Returns the compiler with the machine's C library if musl cannot be used, as in a cache whose path has a space. */
function gateCompiler(cacheDir: string, env: NodeJS.ProcessEnv): string {
  try {
    return findMuslCompiler(resolve(cacheDir), env, log);
  } catch (error) {
    if (!(error instanceof ToolchainError)) throw error;
    log(`building netdra-gate with the C library of this machine: ${explain(error)}`);
    return findCompiler(env);
  }
}

/** A package of a newer Debian may need a newer C library, and a suite moves on to newer versions. */
function checkItRuns(series: ContainerdSeries, folder: string | undefined): void {
  const version = folder === undefined ? undefined : containerdVersion(`${folder}/containerd`);
  if (version?.startsWith(series.slice(0, 2))) return;
  throw new ToolError('tool-does-not-run', `the containerd fetched for ${series} does not run here or is ${version}`, {
    ...(folder === undefined ? {} : { path: folder }),
    hint: `have a containerd ${series} in a folder of yours and name it in NETDRA_CONTAINERD_DIRS`,
  });
}

function quote(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

try {
  main(process.argv[2] ?? cacheFolder(process.env), process.env);
} catch (error) {
  if (!(error instanceof NetdraError)) throw error;
  console.error(`netdra: ${explain(error)}`);
  process.exitCode = 1;
}
