import { lstat, mkdir, mkdtemp, readdir, readFile, readlink, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { errnoCode } from '../errors.ts';

/** Paths below a directory: files with their text, and symbolic links with their target. */
export type FileTree = Map<string, { text: string } | { target: string }>;

/**
 * Makes a directory hold these files and nothing else. What is right already is left alone, and what changes is
 * replaced in one step, so that somebody who reads meanwhile sees the old or the new.
 * @throws the Node.js error of what failed
 */
export async function writeFileTree(dir: string, tree: FileTree): Promise<void> {
  const dirs = new Set(['']);
  for (const path of tree.keys()) {
    for (let parent = dirname(path); parent !== '.'; parent = dirname(parent)) dirs.add(parent);
  }
  await removeOthers(dir, '', tree, dirs);
  for (const path of dirs) await mkdir(join(dir, path), { recursive: true });
  // Beside the tree: another instance of the driver that does the same must not take it for a file too many.
  const workshop = await mkdtemp(`${dir}-`);
  try {
    for (const [path, entry] of tree) await writeEntry(join(dir, path), entry, join(workshop, 'entry'));
  } finally {
    await rm(workshop, { recursive: true, force: true });
  }
}

async function removeOthers(dir: string, path: string, tree: FileTree, dirs: Set<string>): Promise<void> {
  const entries = await readdir(join(dir, path), { withFileTypes: true }).catch((error) => {
    if (errnoCode(error) === 'ENOENT') return [];
    throw error;
  });
  for (const entry of entries) {
    const child = join(path, entry.name);
    const wanted = entry.isDirectory() ? dirs.has(child) : tree.has(child);
    if (!wanted) await rm(join(dir, child), { recursive: true, force: true });
    else if (entry.isDirectory()) await removeOthers(dir, child, tree, dirs);
  }
}

async function writeEntry(
  path: string,
  entry: { text: string } | { target: string },
  temporary: string,
): Promise<void> {
  if (await isRight(path, entry)) return;
  if ('text' in entry) await writeFile(temporary, entry.text);
  else await symlink(entry.target, temporary);
  await rename(temporary, path);
}

async function isRight(path: string, entry: { text: string } | { target: string }): Promise<boolean> {
  try {
    const isLink = (await lstat(path)).isSymbolicLink();
    if ('target' in entry) return isLink && (await readlink(path)) === entry.target;
    return !isLink && (await readFile(path, 'utf8')) === entry.text;
  } catch (error) {
    if (errnoCode(error) === 'ENOENT') return false;
    throw error;
  }
}
