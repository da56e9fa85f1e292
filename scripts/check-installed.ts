/**
 * Compares the packages installed by npm with package-lock.json: `node scripts/check-installed.ts FOLDER...`. Exits with 1 for a
 * package that is missing in the lock file or has other content there. `npm ci` would do the same, but also refuses a lock file
 * without the optional packages of platforms for which the image is not built. Called by the Dockerfile.
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
