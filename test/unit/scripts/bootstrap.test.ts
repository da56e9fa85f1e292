import { hash } from 'node:crypto';
import { chmodSync, cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { findFolderWith, pathFolders } from '../../../scripts/packages/host-programs.ts';
import { run } from '../../../scripts/packages/run.ts';
import { repository } from '../../../scripts/run-command.ts';
import { tempDir } from '../../doubles/temp-dir.ts';

const hasNpm = findFolderWith(pathFolders(), ['npm']) !== undefined;

const devDependencies = { vitest: 'file:vitest' };
const packages = {
  '': { name: 'checkout', devDependencies },
  'node_modules/vitest': { resolved: 'vitest', link: true },
  vitest: { version: '1.0.0', dev: true, bin: { vitest: 'vitest.sh' } },
};

/** Makes a checkout with scripts/bootstrap.sh, whose only package is a folder beside it. */
function makeCheckout(): string {
  const dir = tempDir();
  onTestFinished(() => dir[Symbol.dispose]());
  const write = (path: string, text: string) => {
    mkdirSync(join(dir.path, path, '..'), { recursive: true });
    writeFileSync(join(dir.path, path), text);
  };
  mkdirSync(join(dir.path, 'scripts'));
  cpSync(join(repository, 'scripts/bootstrap.sh'), join(dir.path, 'scripts/bootstrap.sh'));
  write('vitest/package.json', JSON.stringify({ name: 'vitest', version: '1.0.0', bin: 'vitest.sh' }));
  write('vitest/vitest.sh', '#!/bin/sh\necho runs\n');
  chmodSync(join(dir.path, 'vitest/vitest.sh'), 0o755);
  write('package.json', JSON.stringify({ name: 'checkout', devDependencies }));
  write('package-lock.json', JSON.stringify({ name: 'checkout', lockfileVersion: 3, packages }));
  return dir.path;
}

/** Runs the tests of a checkout, in an environment that is not for development. */
function runTests(checkout: string): string {
  const env = { ...process.env, NODE_ENV: 'production', npm_config_omit: 'dev', npm_config_offline: 'true' };
  return run('bash', ['scripts/bootstrap.sh', 'vitest'], { cwd: checkout, env });
}

// npm takes seconds to install a package, on a busy machine half a minute.
describe.runIf(hasNpm)('scripts/bootstrap.sh', { timeout: 300_000 }, () => {
  it('installs the packages for development, too, whatever NODE_ENV and npm are set to', () => {
    expect(runTests(makeCheckout())).toBe('runs\n');
  });

  it('completes packages that an earlier run has not installed', () => {
    const checkout = makeCheckout();
    mkdirSync(join(checkout, 'node_modules'));
    const lockHash = hash('sha256', readFileSync(join(checkout, 'package-lock.json')));
    writeFileSync(join(checkout, 'node_modules/.netdra-lock-hash'), `${lockHash}\n`);
    expect(runTests(checkout)).toBe('runs\n');
  });
});
