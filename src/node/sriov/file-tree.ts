import {
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

type FileEntry = { text: string } | { target: string };

/** Content of a directory by path: files with their texts, and symbolic links with their targets. */
export type FileTree = Map<string, FileEntry>;

/**
 * Makes a directory contain exactly these files. Leaves correct entries alone and replaces others atomically, so that a
 * concurrent reader sees either the old or the new entry.
 * @throws the Node.js error of the operation that failed
 */
export function writeFileTree(dir: string, tree: FileTree): void {
  const dirs = new Set<string>([dir]);
  for (const path of tree.keys()) {
    for (let parent = dirname(path); parent !== '.'; parent = dirname(parent)) dirs.add(join(dir, parent));
  }
  const files = new Set([...tree.keys()].map((path) => join(dir, path)));
  mkdirSync(dir, { recursive: true });
  removeOthers(dir, files, dirs);
  for (const path of dirs) mkdirSync(path, { recursive: true });
  // Temporary files are outside of the tree: another instance that writes the tree at the same time would remove them.
  const workshop = mkdtempSync(`${dir}-`);
  try {
    for (const [path, entry] of tree) writeEntry(join(dir, path), entry, join(workshop, 'entry'));
  } finally {
    rmSync(workshop, { recursive: true, force: true });
  }
}

function removeOthers(dir: string, files: Set<string>, dirs: Set<string>): void {
  for (const entry of readdirSync(dir, { withFileTypes: true })) {
    const path = join(dir, entry.name);
    const isWanted = (entry.isDirectory() ? dirs : files).has(path);
    if (!isWanted) rmSync(path, { recursive: true, force: true });
    else if (entry.isDirectory()) removeOthers(path, files, dirs);
  }
}

function writeEntry(path: string, entry: FileEntry, temporary: string): void {
  if (isRight(path, entry)) return;
  if ('text' in entry) writeFileSync(temporary, entry.text);
  else symlinkSync(entry.target, temporary);
  renameSync(temporary, path);
}

function isRight(path: string, entry: FileEntry): boolean {
  try {
    const isLink = lstatSync(path).isSymbolicLink();
    if ('target' in entry) return isLink && readlinkSync(path) === entry.target;
    return !isLink && readFileSync(path, 'utf8') === entry.text;
  } catch (error) {
    if (errnoCode(error) === 'ENOENT') return false;
    throw error;
  }
}
