import {
  type Dirent,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { errnoCode } from '../../lib/errors.ts';

/** Paths below a directory: files with their text, and symbolic links with their target. */
export type FileTree = Map<string, { text: string } | { target: string }>;

/**
 * Makes a directory contain exactly these files. Correct entries are left alone, and changed ones are replaced in one
 * step, so that a concurrent reader sees either the old or the new one.
 * @throws the Node.js error of the operation that failed
 */
export function writeFileTree(dir: string, tree: FileTree): void {
  const dirs = new Set(['']);
  for (const path of tree.keys()) {
    for (let parent = dirname(path); parent !== '.'; parent = dirname(parent)) dirs.add(parent);
  }
  removeOthers(dir, '', tree, dirs);
  for (const path of dirs) mkdirSync(join(dir, path), { recursive: true });
  // Beside the tree: another instance of the driver that does the same must not remove it as a superfluous file.
  const workshop = mkdtempSync(`${dir}-`);
  try {
    for (const [path, entry] of tree) writeEntry(join(dir, path), entry, join(workshop, 'entry'));
  } finally {
    rmSync(workshop, { recursive: true, force: true });
  }
}

function removeOthers(dir: string, path: string, tree: FileTree, dirs: Set<string>): void {
  for (const entry of listDir(join(dir, path))) {
    const child = join(path, entry.name);
    const wanted = entry.isDirectory() ? dirs.has(child) : tree.has(child);
    if (!wanted) rmSync(join(dir, child), { recursive: true, force: true });
    else if (entry.isDirectory()) removeOthers(dir, child, tree, dirs);
  }
}

function writeEntry(path: string, entry: { text: string } | { target: string }, temporary: string): void {
  if (isRight(path, entry)) return;
  if ('text' in entry) writeFileSync(temporary, entry.text);
  else symlinkSync(entry.target, temporary);
  renameSync(temporary, path);
}

function isRight(path: string, entry: { text: string } | { target: string }): boolean {
  try {
    const isLink = lstatSync(path).isSymbolicLink();
    if ('target' in entry) return isLink && readlinkSync(path) === entry.target;
    return !isLink && readFileSync(path, 'utf8') === entry.text;
  } catch (error) {
    if (errnoCode(error) === 'ENOENT') return false;
    throw error;
  }
}

function listDir(path: string): Dirent[] {
  try {
    return readdirSync(path, { withFileTypes: true });
  } catch (error) {
    if (errnoCode(error) === 'ENOENT') return [];
    throw error;
  }
}
