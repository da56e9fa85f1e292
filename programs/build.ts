import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { run } from '../scripts/packages/run.ts';
import { findCompiler, findMuslCompiler } from './toolchain.ts';

const folder = fileURLToPath(new URL('.', import.meta.url));

/**
 * Returns the cache folder for programs built from these sources, which may not exist yet.
 * @param kind `static`, as they are shipped, or `checked`, with sanitizers
 */
export function programsFolder(cacheDir: string, kind: 'static' | 'checked'): string {
  const hash = createHash('sha256');
  for (const name of ['Makefile', ...sources('src'), ...sources('fuzz')]) {
    hash.update(`${name}\0`).update(readFileSync(join(folder, name)));
  }
  return join(cacheDir, `programs-${kind}-${hash.digest('hex').slice(0, 12)}`);
}

function sources(dir: string): string[] {
  return readdirSync(join(folder, dir))
    .sort()
    .map((name) => join(dir, name));
}

export interface BuildOptions {
  /** Folder for what is built. */
  outDir: string;
  /** Where compilers that are fetched are kept. */
  cacheDir: string;
  /** Command line of the compiler instead of the one that is found. */
  compiler?: string;
  env?: NodeJS.ProcessEnv;
  log?: (line: string) => void;
}

/**
 * Builds the programs as they are shipped, each one static file.
 * @returns the path of `netdra-metadata`, the tool for containers
 * @throws ToolchainError, PackageError, CommandError with what the compiler said
 */
export function buildConsumer(options: BuildOptions): string {
  return join(buildPrograms(options), 'netdra-metadata');
}

/** The same for `netdra-gate`, the hook of the driver's claims. */
export function buildGate(options: BuildOptions): string {
  return join(buildPrograms(options), 'netdra-gate');
}

function buildPrograms(options: BuildOptions): string {
  const { outDir, cacheDir, env = process.env, log = () => undefined } = options;
  const compiler = options.compiler ?? findMuslCompiler(resolve(cacheDir), env, log);
  make(options, [`CC=${compiler}`]);
  return resolve(outDir);
}

/** The programs for tests, slow and large. */
export interface CheckedPrograms {
  tool: string;
  gate: string;
  /** Feeds the parsers of both with noise. */
  fuzz: string;
  /** `gate`, with system calls that fail as `fuzz/faults.c` says. */
  failingGate: string;
}

/** Builds the programs with sanitizers, which end them at the first wrong access to memory. */
export function buildCheckedConsumer(options: Omit<BuildOptions, 'cacheDir'>): CheckedPrograms {
  make(options, [`CC=${options.compiler ?? findCompiler(options.env ?? process.env)}`, 'check']);
  const outDir = resolve(options.outDir);
  return {
    tool: join(outDir, 'netdra-metadata'),
    gate: join(outDir, 'netdra-gate'),
    fuzz: join(outDir, 'fuzz'),
    failingGate: join(outDir, 'failing-gate'),
  };
}

function make({ outDir, env = process.env }: Omit<BuildOptions, 'cacheDir'>, args: string[]): void {
  const { version } = JSON.parse(readFileSync(join(folder, '../package.json'), 'utf8')) as { version: string };
  mkdirSync(resolve(outDir), { recursive: true });
  // Test files that run at once share what is built.
  run(
    'flock',
    [
      join(resolve(outDir), 'lock'),
      'make',
      '-s',
      '-C',
      folder,
      `OUT=${resolve(outDir).replaceAll(' ', '\\ ')}`,
      `VERSION=${version}`,
      ...args,
    ],
    {
      env,
      timeoutMs: 120_000,
      name: 'building netdra-metadata and netdra-gate',
    },
  );
}
