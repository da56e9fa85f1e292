/**
 * Makes what the image has besides Node.js, and lists it:
 *
 *   node scripts/bundle.ts [--arch amd64|arm64] [--modules NODE_MODULES] [--out FOLDER]
 *
 * Default: this machine's processor, the repository's node_modules, dist/image. Called by `npm run bundle` and by the
 * Dockerfile.
 */
import { parseArgs } from 'node:util';
import { listImageFiles, makeImageFiles } from '../deploy/image/image-files.ts';
import { type Architecture, architectures } from '../deploy/image/layout.ts';
import { explain, NetdraError } from '../src/errors.ts';

const { values } = parseArgs({
  options: { arch: { type: 'string' }, modules: { type: 'string' }, out: { type: 'string', default: 'dist/image' } },
});
const names = Object.keys(architectures) as Architecture[];

try {
  const architecture = names.find(
    (name) => name === values.arch || architectures[name] === (values.arch ?? process.arch),
  );
  if (architecture === undefined) {
    throw new NetdraError('architecture-unknown', `no image for ${values.arch ?? process.arch}`, {
      hint: `give --arch: ${names.join(' or ')}`,
    });
  }
  const modules = values.modules === undefined ? {} : { modulesDir: values.modules };
  await makeImageFiles({ outDir: values.out, architecture, ...modules });
  const files = listImageFiles(values.out);
  const kilobytes = (bytes: number) => (bytes / 1_000).toFixed(0).padStart(7);
  for (const { path, sizeBytes } of files) console.log(`${kilobytes(sizeBytes)} kB  ${path}`);
  console.log(`${kilobytes(files.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0))} kB  for ${architecture}`);
} catch (error) {
  if (!(error instanceof NetdraError)) throw error;
  console.error(`netdra: ${explain(error)}`);
  process.exitCode = 1;
}
