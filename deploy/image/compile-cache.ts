import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { NetdraError } from '../../src/lib/errors.ts';
import { cacheDir, nodeEnv, nodeFlags, programPath } from './layout.ts';

/**
 * Stores V8's compiled code of the program, which speeds up its start. Node.js ignores it if it was made by another
 * version, for another processor or by another user: then the start takes longer, but nothing else changes.
 * @param imageDir content of the image's `/`, complete except for this
 * @throws NetdraError `program-broken` if the program cannot be started
 */
export function makeCompileCache(imageDir: string): void {
  const work = mkdtempSync(join(tmpdir(), 'netdra-cache-'));
  try {
    mkdirSync(join(imageDir, cacheDir), { recursive: true });
    // Loads all of the driver and ends at once, since it finds no API server.
    const { stderr } = spawnSync(
      process.execPath,
      [
        ...nodeFlags,
        // The order of what is stored follows from hashes: the same program gives the same bytes. Not compared when the cache is read.
        '--random-seed=1',
        join(imageDir, programPath),
        'run',
        '--node-name=none',
        ...['cdi', 'kubelet-plugins', 'kubelet-registry', 'state'].map((name) => `--${name}-dir=${work}`),
      ],
      { env: nodeEnv(imageDir), encoding: 'utf8', timeout: 60_000, killSignal: 'SIGKILL' },
    );
    if (!stderr.includes('no API server is known')) {
      throw new NetdraError('program-broken', `the program does not start as it should: ${stderr.slice(0, 2_000)}`);
    }
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}
