import { rmSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { CommandError, run } from '../../scripts/packages/run.ts';
import { NetdraError } from '../../src/lib/errors.ts';

/** Public keys that sign releases, as ssh-keygen(1) reads them, "ALLOWED SIGNERS". */
export const releaseSigners = fileURLToPath(new URL('../../deploy/release-signers', import.meta.url));

/**
 * Signs the checksums of a release, in `<sums>.sig`, and verifies that as users do.
 * @param key path of a private SSH key, or of a public one whose private key the SSH agent has
 * @throws CommandError; NetdraError `signer-unknown` if `signers` does not have the key
 */
export function signSums(sums: string, key: string, signers = releaseSigners): void {
  rmSync(`${sums}.sig`, { force: true });
  run('ssh-keygen', ['-Y', 'sign', '-n', 'netdra', '-f', key, sums]);
  try {
    verifySums(sums, signers);
  } catch (cause) {
    if (!(cause instanceof CommandError)) throw cause;
    rmSync(`${sums}.sig`);
    throw new NetdraError('signer-unknown', `signatures by ${key} are not accepted`, {
      cause,
      path: signers,
      hint: `add its public key to ${signers}, or use another one`,
    });
  }
}

/** @throws CommandError if the signature is not one of these signers for these bytes */
export function verifySums(sums: string, signers = releaseSigners): void {
  const command = 'ssh-keygen -Y verify -f "$1" -I netdra -n netdra -s "$2.sig" < "$2"';
  run('sh', ['-c', command, 'sh', signers, sums], { name: `verifying ${sums}.sig` });
}
