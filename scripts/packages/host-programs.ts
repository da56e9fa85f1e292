import { accessSync, constants, statSync } from 'node:fs';
import { join } from 'node:path';
import { CommandError, run } from './run.ts';

/** The folders of a PATH. */
export function pathFolders(path = process.env.PATH ?? ''): string[] {
  return path.split(':').filter((folder) => folder.startsWith('/'));
}

/** The first folder that contains all of these as programs. */
export function findFolderWith(folders: string[], programs: string[]): string | undefined {
  return folders.find((folder) => programs.every((program) => isProgram(join(folder, program))));
}

export function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

/**
 * The version reported by a containerd, e.g. `2.1.9`; `undefined` if it does not run or prints something else.
 * The line looks like `containerd github.com/containerd/containerd/v2 2.1.9+unknown …`, with a `v` in upstream's builds.
 */
export function containerdVersion(program: string): string | undefined {
  try {
    return parseContainerdVersion(run(program, ['--version'], { timeoutMs: 10_000 }));
  } catch (error) {
    if (error instanceof CommandError) return undefined;
    throw error;
  }
}

export function parseContainerdVersion(text: string): string | undefined {
  return /^containerd \S+ v?(\d+\.\d+\.\d+)/.exec(text)?.[1];
}
