/**
 * Compares what npm has installed with package-lock.json: `node scripts/check-installed.ts FOLDER...`. Exits with 1 for a package that
 * the lock file does not have, or has with other content. `npm ci` would do the same, but it also refuses a lock file without the optional
 * packages of platforms that the image is not built for. Called by the Dockerfile.
 */
import { findUnlocked } from '../deploy/image/lock-file.ts';

let problems = 0;
for (const folder of process.argv.slice(2)) {
  for (const problem of findUnlocked(folder)) {
    console.error(`netdra: ${folder}: ${problem}`);
    problems++;
  }
}
if (problems > 0) process.exitCode = 1;
