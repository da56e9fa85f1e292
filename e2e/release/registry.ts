import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { isProgram } from '../../scripts/packages/host-programs.ts';
import { run } from '../../scripts/packages/run.ts';
import { NetdraError } from '../../src/lib/errors.ts';
import { ensureGoPrograms, goProgramsFolder } from '../go/build.ts';

/** Name of the Go module with crane, below `e2e/go`. */
const craneModule = 'registry';

/** A registry that does not start, or rejects an image. */
export class RegistryError extends NetdraError {}

export interface RegistryOptions {
  cacheDir: string;
  /** Folder for pushed images; absent: in memory, lost with the registry. */
  dir?: string;
  /** Port on 127.0.0.1; default: a free one. */
  port?: number;
}

/** A registry on 127.0.0.1, without TLS and without accounts: `crane registry serve`. */
export interface Registry extends AsyncDisposable {
  /** `127.0.0.1:PORT`, the prefix of the images' names. */
  address: string;
  /**
   * Pushes an image.
   * @param path folder with an OCI layout, or an OCI archive; one image
   * @param name without the registry, e.g. `netdra:0.1.0`
   * @returns name with registry and digest, e.g. `127.0.0.1:5000/netdra@sha256:…`
   * @throws CommandError
   */
  push(path: string, name: string): string;
}

/** Builds the registry, before tests run without a network. @throws GoBuildError */
export async function fetchRegistry(cacheDir: string, log: (line: string) => void): Promise<void> {
  await ensureGoPrograms(cacheDir, craneModule, log);
}

/** @throws RegistryError `tool-missing`, `registry-ended` */
export async function startRegistry({ cacheDir, dir, port = 0 }: RegistryOptions): Promise<Registry> {
  const crane = join(goProgramsFolder(cacheDir, craneModule), 'crane');
  if (!isProgram(crane)) {
    throw new RegistryError('tool-missing', `no ${crane}`, { hint: 'run `node scripts/fetch-release-tools.ts` first' });
  }
  const args = ['registry', 'serve', '--address', `127.0.0.1:${port}`, ...(dir === undefined ? [] : ['--disk', dir])];
  // It must not outlive this process, however that ends.
  const child = spawn('setpriv', ['--pdeathsig', 'KILL', crane, ...args], { stdio: ['ignore', 'ignore', 'pipe'] });
  const ended = once(child, 'close');
  await using stack = new AsyncDisposableStack();
  stack.defer(async () => {
    child.kill();
    await ended;
  });
  const lines: string[] = [];
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  createInterface(child.stderr).on('line', (line) => {
    const [, served] = / serving on port (\d+)$/.exec(line) ?? [];
    if (served !== undefined) resolve(`127.0.0.1:${served}`);
    // One line per request follows: all are read, so that the registry does not block.
    else if (lines.length < 10) lines.push(line);
  });
  const refuse = (cause?: Error) =>
    reject(
      new RegistryError('registry-ended', `the registry does not start: ${lines.join('; ')}`, { cause, path: crane }),
    );
  child.once('error', refuse).once('close', () => refuse());
  const address = await promise;
  const owned = stack.move();
  return {
    address,
    push: (path, name) => pushImage(crane, path, `${address}/${name}`),
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

function pushImage(crane: string, path: string, name: string): string {
  if (statSync(path).isDirectory()) return run(crane, ['push', path, name]).trim();
  const layout = mkdtempSync(join(tmpdir(), 'netdra-layout-'));
  try {
    run('tar', ['--extract', '--file', path, '--directory', layout]);
    return run(crane, ['push', layout, name]).trim();
  } finally {
    rmSync(layout, { recursive: true, force: true });
  }
}
