import { spawnSync } from 'node:child_process';
import { findFolderWith, pathFolders } from '../packages/host-programs.ts';

/** A part of the tests: one command whose output says how many cases passed. */
export interface Part {
  name: string;
  /** Versions of the real programs involved. */
  versions: string;
  command: readonly string[];
  /** Variables for the command, beside those of this process. */
  env?: () => Record<string, string>;
  /** Seconds that it takes on two processors with a filled cache. */
  seconds: number;
  needs: readonly Requirement[];
  /** Provides the programs that it needs, with all processors. Rejects with the reason why the part cannot run. */
  prepare?: () => Promise<void>;
  /**
   * The command that runs failed cases once more, alone: for cases that share a machine with a cluster or an emulator, and
   * can run out of time there. Absent: a failed case is final.
   */
  again?: (cases: readonly FailedCase[]) => readonly string[];
}

/** A case that failed, as vitest names it. */
export interface FailedCase {
  /** The file, as printed: relative to the root of its vitest project. */
  file: string;
  /** Titles of its suites and its own. Empty: the file could not be loaded. */
  titles: readonly string[];
}

/** Something that a part needs of the machine. */
export interface Requirement {
  /** Why the part cannot run here; `undefined` if it can. */
  problem(): string | undefined;
}

export const root: Requirement = {
  problem: () => (process.getuid?.() === 0 ? undefined : 'needs root'),
};

/** Namespaces of its own: as root, or in a user namespace (user_namespaces(7)). */
export const namespaces: Requirement = {
  problem: () => {
    if (process.getuid?.() === 0) return undefined;
    const { status } = spawnSync('unshare', ['--user', '--map-root-user', '--mount', '--net', 'true']);
    return status === 0 ? undefined : 'needs root, or a kernel that allows user namespaces';
  },
};

/** Programs in PATH. */
export function programs(...names: string[]): Requirement {
  return {
    problem: () => {
      const missing = names.filter((name) => findFolderWith(pathFolders(), [name]) === undefined);
      return missing.length === 0 ? undefined : `needs ${missing.join(', ')}`;
    },
  };
}

export const compiler = programs('gcc', 'make');

/** Debian's packages are unpacked into the cache by these. */
export const debian = programs('apt-get', 'dpkg-deb');

export const x86: Requirement = {
  problem: () => (process.arch === 'x64' ? undefined : 'needs an x86-64 processor'),
};

/** The first reason why a part cannot run on this machine; `undefined` if it can. */
export function problemOf({ needs }: Pick<Part, 'needs'>): string | undefined {
  for (const need of needs) {
    const problem = need.problem();
    if (problem !== undefined) return problem;
  }
  return undefined;
}
