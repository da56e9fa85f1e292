import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { run } from '../../scripts/packages/run.ts';
import { NetdraError } from '../../src/lib/errors.ts';

/** Name of the file that shows that a folder is a release: it has the checksums of the others. */
export const sumsFile = 'SHA256SUMS';

/** @throws NetdraError `folder-not-empty` if a release must not take the place of the folder */
export function checkReleaseFolder(out: string): void {
  if (!existsSync(out) || readdirSync(out).length === 0 || existsSync(join(out, sumsFile))) return;
  throw new NetdraError('folder-not-empty', `${out} is not empty, and is no release, which would be replaced`, {
    path: out,
    hint: 'name another folder',
  });
}

/**
 * Fills a folder beside `out`, which takes the place of `out` at the end.
 * @returns what `fill` returns
 * @throws NetdraError `folder-not-empty`, and what `fill` throws, without a change of `out`
 */
export function fillReleaseFolder<Result>(out: string, fill: (dir: string) => Result): Result {
  checkReleaseFolder(out);
  mkdirSync(dirname(out), { recursive: true });
  const made = mkdtempSync(`${out}.new-`);
  try {
    const result = fill(made);
    chmodSync(made, 0o755);
    rmSync(out, { recursive: true, force: true });
    renameSync(made, out);
    return result;
  } finally {
    rmSync(made, { recursive: true, force: true });
  }
}

/** @returns the names of files that only one of two lists of checksums has, or that differ */
export function compareSums(first: string, again: string): string[] {
  const [lines, others] = [first, again].map((sums) => sums.split('\n').filter((line) => line !== ''));
  const different = new Set(lines).symmetricDifference(new Set(others));
  return [...new Set([...different].map((line) => line.replace(/^\S+ +/, '')))].sort();
}

/**
 * Checks that a release is made of a commit, and that of its tag in CI.
 * @throws NetdraError `checkout-changed`, `tag-differs`; CommandError
 */
export function checkPublishable(checkout: string, version: string, { GITHUB_REF_NAME }: NodeJS.ProcessEnv): void {
  if (GITHUB_REF_NAME !== undefined && GITHUB_REF_NAME !== `v${version}`) {
    throw new NetdraError('tag-differs', `the tag is ${GITHUB_REF_NAME}, the version in package.json is ${version}`, {
      hint: `set the version and tag the commit, or tag this one v${version}`,
    });
  }
  const changes = run('git', ['status', '--porcelain'], { cwd: checkout }).trim();
  if (changes === '') return;
  throw new NetdraError('checkout-changed', `changes are not committed: ${changes.replaceAll('\n', ', ')}`, {
    hint: 'commit or remove them',
  });
}
