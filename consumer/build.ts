import { mkdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { run } from '../e2e/node/packages/run.ts';
import { findCompiler, findMuslCompiler } from './toolchain.ts';

const folder = fileURLToPath(new URL('.', import.meta.url));

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
 * Builds the tool as it is shipped: one static program.
 * @returns its path
 * @throws ToolchainError, PackageError, CommandError with what the compiler said
 */
export function buildConsumer(options: BuildOptions): string {
  const { outDir, cacheDir, env = process.env, log = () => undefined } = options;
  const compiler = options.compiler ?? findMuslCompiler(resolve(cacheDir), env, log);
  make(options, [`CC=${compiler}`]);
  return join(resolve(outDir), 'netdra-metadata');
}

/**
 * Builds the tool with sanitizers, which end it at the first wrong access to memory, and the program that feeds its
 * parsers with noise: slow and large, for tests.
 */
export function buildCheckedConsumer(options: Omit<BuildOptions, 'cacheDir'>): { tool: string; fuzz: string } {
  make(options, [`CC=${options.compiler ?? findCompiler(options.env ?? process.env)}`, 'check']);
  const outDir = resolve(options.outDir);
  return { tool: join(outDir, 'netdra-metadata'), fuzz: join(outDir, 'fuzz') };
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
      `OUT=${resolve(outDir)}`,
      `VERSION=${version}`,
      ...args,
    ],
    {
      env,
      timeoutMs: 120_000,
      name: 'building netdra-metadata',
    },
  );
}
