import { spawnSync } from 'node:child_process';
import { cacheFolder } from '../packages/cache-folder.ts';
import { findMirror } from '../packages/debian-packages.ts';
import { findFolderWith, pathFolders } from '../packages/host-programs.ts';

/** A part of the tests: one command whose output has the number of passed cases. */
export interface Part {
  name: string;
  /** Versions of the real programs involved. */
  versions: string;
  command: readonly string[];
  /** Environment variables for the command, added to those of this process. */
  env?: () => Record<string, string>;
  /** Duration in seconds on two processors with a filled cache. */
  seconds: number;
  needs: readonly Requirement[];
  /** Builds or fetches the programs of the part, on all processors. The part fails if this rejects. */
  prepare?: () => Promise<void>;
  /**
   * Returns the command that repeats failed cases alone, for cases that can time out beside a cluster or an emulator.
   * Absent: a failed case is final.
   */
  again?: (cases: readonly FailedCase[]) => readonly string[];
}

/** A case that failed, as vitest names it. */
export interface FailedCase {
  /** The file, as printed: relative to the root of its vitest project. */
  file: string;
  /** Titles of its suites, then its own title. Empty: the file could not be loaded. */
  titles: readonly string[];
}

/** A requirement of a part on the machine. */
export interface Requirement {
  /** Returns why the part cannot run here; `undefined` if it can. */
  problem(): string | undefined;
}

export const root: Requirement = {
  problem: () => (process.getuid?.() === 0 ? undefined : 'needs root'),
};

/** Requires new namespaces: root, or user namespaces (user_namespaces(7)). */
export const namespaces: Requirement = {
  problem: () => {
    if (process.getuid?.() === 0) return undefined;
    const { status } = spawnSync('unshare', ['--user', '--map-root-user', '--mount', '--net', 'true']);
    return status === 0 ? undefined : 'needs root, or a kernel that allows user namespaces';
  },
};

/** Requires that an ordinary user, whom root becomes, may make namespaces: user_namespaces(7). */
export const ordinaryUser: Requirement = {
  problem: () => {
    if (process.getuid?.() !== 0) return 'needs root, to become another user';
    const command = '--reuid 65534 --regid 65534 --clear-groups unshare --user --map-root-user --mount --net true';
    const { status } = spawnSync('setpriv', command.split(' '));
    return status === 0 ? undefined : 'needs setpriv, and a kernel that allows user namespaces';
  },
};

/** Requires programs in PATH. */
export function programs(...names: string[]): Requirement {
  return {
    problem: () => {
      const missing = names.filter((name) => findFolderWith(pathFolders(), [name]) === undefined);
      return missing.length === 0 ? undefined : `needs ${missing.join(', ')}`;
    },
  };
}

export const compiler = programs('gcc', 'make');

/** Requires a mirror of Debian: other distributions also have apt. */
export function mirror(aptDir: string): Requirement {
  return {
    problem: () =>
      findMirror(aptDir) === undefined
        ? `needs a Debian mirror: ${aptDir} has none, and NETDRA_DEBIAN_MIRROR is not set`
        : undefined,
  };
}

const aptPrograms = programs('apt-get', 'dpkg-deb');
const aptMirror = mirror('/etc/apt');

/** Requires what unpacks Debian's packages into the cache. */
export const debian: Requirement = { problem: () => aptPrograms.problem() ?? aptMirror.problem() };

/** Requires {@link debian} for programs that are neither on the machine nor in the cache. */
export function debianUnless(hasPrograms: (cacheDir: string, env: NodeJS.ProcessEnv) => boolean): Requirement {
  return {
    problem: () => (hasPrograms(cacheFolder(process.env), process.env) ? undefined : debian.problem()),
  };
}

export const x86: Requirement = {
  problem: () => (process.arch === 'x64' ? undefined : 'needs an x86-64 processor'),
};

/** Returns the first reason why a part cannot run on this machine; `undefined` if it can. */
export function problemOf({ needs }: Pick<Part, 'needs'>): string | undefined {
  for (const need of needs) {
    const problem = need.problem();
    if (problem !== undefined) return problem;
  }
  return undefined;
}
