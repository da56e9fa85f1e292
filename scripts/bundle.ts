/**
 * Makes the content of the image except Node.js, and lists it:
 *
 *   node scripts/bundle.ts [--arch amd64|arm64] [--modules NODE_MODULES] [--gate NETDRA_GATE] [--out FOLDER]
 *
 * Default: this machine's processor, the repository's node_modules, a netdra-gate built for this machine, dist/image.
 * Called by `npm run bundle` and by the Dockerfile.
 */
import { parseArgs } from 'node:util';
import { listImageFiles, makeImageFiles } from '../deploy/image/image-files.ts';
import { type Architecture, architectures } from '../deploy/image/layout.ts';
import { explain, NetdraError } from '../src/lib/errors.ts';

const { values } = parseArgs({
  options: {
    arch: { type: 'string' },
    modules: { type: 'string' },
    gate: { type: 'string' },
    out: { type: 'string', default: 'dist/image' },
  },
});
const names = Object.keys(architectures) as Architecture[];

async function buildOwnGate(architecture: Architecture): Promise<string> {
  if (architectures[architecture] !== process.arch) {
    throw new NetdraError('gate-missing', `netdra-gate for ${architecture} cannot be built for want of a compiler`, {
      hint: 'build it with `make -C programs CC=…-gcc`, see programs/README.md, and name it with --gate',
    });
  }
  // Not imported at the top: the Dockerfile has neither the builder nor its dependencies.
  const { buildGate } = await import('../programs/build.ts');
  const { cacheFolder } = await import('./packages/cache-folder.ts');
  const cacheDir = cacheFolder(process.env);
  return buildGate({ outDir: 'dist/programs', cacheDir, log: (line) => console.error(`netdra: ${line}`) });
}

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
  const gateProgram = values.gate ?? (await buildOwnGate(architecture));
  await makeImageFiles({ outDir: values.out, architecture, gateProgram, ...modules });
  const files = listImageFiles(values.out);
  const kilobytes = (bytes: number) => (bytes / 1_000).toFixed(0).padStart(7);
  for (const { path, sizeBytes } of files) console.log(`${kilobytes(sizeBytes)} kB  ${path}`);
  console.log(`${kilobytes(files.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0))} kB  for ${architecture}`);
} catch (error) {
  if (!(error instanceof NetdraError)) throw error;
  console.error(`netdra: ${explain(error)}`);
  process.exitCode = 1;
}
