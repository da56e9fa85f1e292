/**
 * Makes what a release publishes, in one folder: `npm run release -- [--twice] [--arch ARCH]... [--sign-key KEY] [OUT]`, default
 * `dist/release`, in which only an earlier release is replaced. Base images are made of the newest Debian packages; the same sources
 * and base images give the same bytes. `--twice` makes everything again, from the Dockerfile on, and compares. Images are for amd64
 * and arm64, or for each `--arch`; their programs are started, by emulation where they are for another processor. `--sign-key` signs
 * the checksums with an SSH key: docs/releasing.md. With it, and in CI for a tag, the checkout must be that of a commit and the tag.
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { type Architecture, architectures } from '../deploy/image/layout.ts';
import { makeRelease } from '../e2e/release/artifacts.ts';
import { buildDriverImage, rebuildDriverImage, removeDriverImage } from '../e2e/release/driver-image.ts';
import { checkPublishable, checkReleaseFolder, compareSums, sumsFile } from '../e2e/release/folder.ts';
import { fetchHelm } from '../e2e/release/helm.ts';
import { signSums } from '../e2e/release/signature.ts';
import { checkImageStarts } from '../e2e/release/start-image.ts';
import packageInfo from '../package.json' with { type: 'json' };
import { explain, NetdraError } from '../src/lib/errors.ts';
import { cacheFolder } from './packages/cache-folder.ts';
import { repository } from './run-command.ts';

type Images = Partial<Record<Architecture, string>>;

const cacheDir = cacheFolder(process.env);
const log = (line: string) => console.error(`netdra: ${line}`);
/** @returns the checksums */
const make = (out: string, images: Images) => readFileSync(makeRelease(out, { cacheDir, images, log }).sums, 'utf8');

/** @throws NetdraError `architecture-unknown` */
function chosenArchitectures(names: string[] = Object.keys(architectures)): Architecture[] {
  const unknown = names.filter((name) => !(name in architectures));
  if (unknown.length === 0) return names as Architecture[];
  throw new NetdraError('architecture-unknown', `there is no image for ${unknown.join(', ')}`, {
    hint: `--arch takes ${Object.keys(architectures).join(' or ')}`,
  });
}

try {
  const { values, positionals } = parseArgs({
    options: {
      twice: { type: 'boolean' },
      'sign-key': { type: 'string' },
      arch: { type: 'string', multiple: true },
    },
    allowPositionals: true,
  });
  const out = resolve(positionals[0] ?? 'dist/release');
  const key = values['sign-key'];
  checkReleaseFolder(out);
  if (key !== undefined || process.env.GITHUB_REF_TYPE === 'tag')
    checkPublishable(repository, packageInfo.version, process.env);
  const targets = chosenArchitectures(values.arch);
  await fetchHelm(cacheDir, log, ['helm-4']);
  const images: Images = {};
  for (const target of targets) {
    removeDriverImage(cacheDir, target);
    const image = buildDriverImage(cacheDir, log, target);
    checkImageStarts(cacheDir, image, target, log);
    images[target] = image;
  }
  const sums = make(out, images);
  process.stdout.write(sums);
  if (values.twice) {
    const dir = mkdtempSync(join(tmpdir(), 'netdra-release-'));
    try {
      const rebuilt = targets.map((target) => [target, join(dir, target)] as const);
      for (const [target, image] of rebuilt) rebuildDriverImage(cacheDir, image, target);
      const different = compareSums(sums, make(join(dir, 'out'), Object.fromEntries(rebuilt)));
      if (different.length > 0)
        throw new NetdraError('not-reproducible', `made again, these files differ:\n${different.join('\n')}`, {
          hint: 'something in them depends on when, where or in which order it was made',
        });
      log('made again, with the same bytes');
    } finally {
      rmSync(dir, { recursive: true });
    }
  }
  if (key !== undefined) signSums(join(out, sumsFile), key);
} catch (error) {
  if (!(error instanceof NetdraError)) throw error;
  log(explain(error));
  process.exitCode = 1;
}
