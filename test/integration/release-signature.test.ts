import { appendFileSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { signSums, verifySums } from '../../e2e/release/signature.ts';
import { isProgram } from '../../scripts/packages/host-programs.ts';
import { run } from '../../scripts/packages/run.ts';
import { tempDir } from '../doubles/temp-dir.ts';

const hasSsh = (process.env.PATH ?? '').split(':').some((dir) => isProgram(join(dir, 'ssh-keygen')));

describe.skipIf(!hasSsh)('a release signature', () => {
  it('is valid only with a key that the user accepts', () => {
    using dir = tempDir();
    const at = (name: string) => join(dir.path, name);
    for (const name of ['ours', 'other']) run('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-f', at(name)]);
    const signer = (name: string) => `netdra namespaces="netdra" ${readFileSync(at(`${name}.pub`), 'utf8')}`;
    writeFileSync(at('signers'), `# keys\n${signer('ours')}`);
    writeFileSync(at('SHA256SUMS'), 'abc  netdra-0.1.0.tgz\n');

    signSums(at('SHA256SUMS'), at('ours'), at('signers'));
    verifySums(at('SHA256SUMS'), at('signers'));
    expect(() => signSums(at('SHA256SUMS'), at('other'), at('signers'))).toThrow(/other are not accepted/);
    expect(existsSync(at('SHA256SUMS.sig'))).toBe(false);
    signSums(at('SHA256SUMS'), at('ours'), at('signers'));
    appendFileSync(at('SHA256SUMS'), 'def  evil.tgz\n');
    expect(() => verifySums(at('SHA256SUMS'), at('signers'))).toThrow(/verifying .*SHA256SUMS\.sig exited with/);
  });
});
