/**
 * Makes what a release publishes, in one folder: `npm run release -- [--twice] [--sign-key KEY] [OUT]`, default `dist/release`,
 * which is emptied first. The same sources and base images give the same bytes; `--twice` makes everything again, from the
 * Dockerfile on, and compares. `--sign-key` signs the checksums with an SSH key: RELEASING.md.
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { makeRelease } from '../e2e/release/artifacts.ts';
import { buildDriverImage, rebuildDriverImage } from '../e2e/release/driver-image.ts';
import { fetchHelm } from '../e2e/release/helm.ts';
import { signSums } from '../e2e/release/signature.ts';
import { explain, NetdraError } from '../src/lib/errors.ts';
import { cacheFolder } from './packages/cache-folder.ts';

const cacheDir = cacheFolder(process.env);
const log = (line: string) => console.error(`netdra: ${line}`);
/** @returns the checksums */
const make = (out: string, image: string) => readFileSync(makeRelease(out, { cacheDir, image, log }).sums, 'utf8');

try {
  const { values, positionals } = parseArgs({
    options: { twice: { type: 'boolean' }, 'sign-key': { type: 'string' } },
    allowPositionals: true,
  });
  const out = resolve(positionals[0] ?? 'dist/release');
  await fetchHelm(cacheDir, log, ['helm-4']);
  const sums = make(out, buildDriverImage(cacheDir, log));
  process.stdout.write(sums);
  if (values.twice) {
    const dir = mkdtempSync(join(tmpdir(), 'netdra-release-'));
    try {
      rebuildDriverImage(cacheDir, join(dir, 'image'));
      const again = make(join(dir, 'out'), join(dir, 'image')).split('\n');
      const different = again.filter((line) => !sums.includes(line));
      if (different.length > 0)
        throw new NetdraError('not-reproducible', `made again, these files differ:\n${different.join('\n')}`, {
          hint: 'something in them depends on when, where or in which order it was made',
        });
      log('made again, with the same bytes');
    } finally {
      rmSync(dir, { recursive: true });
    }
  }
  const key = values['sign-key'];
  if (key !== undefined) signSums(join(out, 'SHA256SUMS'), key);
} catch (error) {
  if (!(error instanceof NetdraError)) throw error;
  log(explain(error));
  process.exitCode = 1;
}
