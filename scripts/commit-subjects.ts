/**
 * Checks commit subjects against the rule in CONTRIBUTING.md, for recent commits that are newer than the rule. Outside a git
 * repository, such as in a tarball, prints a note and passes.
 */
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const longestSubject = 72;
/** Number of commits to check. Older subjects can no longer be amended, so a fault in one would fail every later check. */
const lastCommits = 20;
/** Returns where the rule begins: after the commit that added this file, or after the oldest commit of a shallow clone. */
const ruleFile = 'scripts/commit-subjects.ts';

interface Commit {
  hash: string;
  subject: string;
}

/** Returns the fault of a subject; `undefined` if it has the form `area: imperative`. */
export function findSubjectProblem(subject: string): string | undefined {
  if (subject.length > longestSubject) return `has ${subject.length} characters, ${longestSubject} are allowed`;
  if (!/^[\w./-]+(, ?[\w./-]+)*: \S/.test(subject)) return 'does not begin with an area and a colon, such as "vf: "';
  if (!/^[^:]+: [a-z]/.test(subject)) return 'has no verb in lower case after the area';
  return subject.endsWith('.') ? 'ends with a full stop' : undefined;
}

/**
 * Lists recent commits after the one that added the rule, without merges.
 * @returns the reason instead, if the folder has no history that git can read
 */
export function listCheckedCommits(folder: string): Commit[] | string {
  const git = (...args: string[]) => spawnSync('git', ['-C', folder, ...args], { encoding: 'utf8' });
  const added = git('log', '--diff-filter=A', '--format=%H', '--', ruleFile);
  if (added.status !== 0) return (added.error?.message ?? added.stderr).trim();
  const first = added.stdout.trim().split('\n').at(-1) ?? '';
  if (first === '') return `no commit has added ${ruleFile} yet`;
  const log = git('log', '--no-merges', `--max-count=${lastCommits}`, '--format=%h %s', `${first}..HEAD`);
  if (log.status !== 0) return log.stderr.trim();
  return log.stdout
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => ({ hash: line.replace(/ .*/, ''), subject: line.replace(/^\S+ /, '') }));
}

if (import.meta.main) {
  const commits = listCheckedCommits(fileURLToPath(new URL('..', import.meta.url)));
  if (typeof commits === 'string') {
    console.log(`subjects of commits: not checked: ${commits}`);
  } else {
    for (const { hash, subject } of commits) {
      const problem = findSubjectProblem(subject);
      if (problem === undefined) continue;
      console.error(`commit ${hash}: the subject ${problem}: ${subject}`);
      process.exitCode = 1;
    }
    if (process.exitCode === 1)
      console.error('CONTRIBUTING.md, "Commits", has the form. Amend or rebase these commits.');
    else console.log(`subjects of commits: ${commits.length} checked`);
  }
}
