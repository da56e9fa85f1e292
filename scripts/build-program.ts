/**
 * Builds the commands of the npm package, `netdra` in FILE, `kubectl-netdra` and `kubectl_complete-netdra` beside it:
 *
 *   node scripts/build-program.ts FILE
 *
 * Called by scripts/build-library.sh.
 */
import { makePackageProgram } from '../deploy/image/image-files.ts';
import { explain } from '../src/lib/errors.ts';

const [file, ...others] = process.argv.slice(2);
if (file === undefined || others.length > 0) {
  console.error('usage: node scripts/build-program.ts FILE');
  process.exit(1);
}
await makePackageProgram(file).catch((error) => {
  console.error(`netdra: ${explain(error)}`);
  process.exitCode = 1;
});
