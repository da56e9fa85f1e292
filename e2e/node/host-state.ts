/** Reads the kernel's information about processes, mounts, cgroups and links, for the whole current namespace. */
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';
import { errnoCode } from '../../src/lib/errors.ts';

export interface ProcessInfo {
  pid: number;
  args: string[];
  /** Paths of its cgroups, one per hierarchy, from the root. */
  cgroups: string[];
}

/** All processes except zombies, which have ended and only wait to be reaped. */
export function listProcesses(procDir = '/proc'): ProcessInfo[] {
  return readdirSync(procDir)
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => {
      const read = (file: string) => readFileSync(join(procDir, name, file), 'utf8');
      return (
        ifThere(() => {
          if (isZombie(read('stat'))) return [];
          return [{ pid: Number(name), args: parseCmdline(read('cmdline')), cgroups: parseProcCgroup(read('cgroup')) }];
        }) ?? []
      );
    });
}

/** The state follows the name, which is in parentheses and can hold any character. Source: proc_pid_stat(5). */
function isZombie(stat: string): boolean {
  return ['Z', 'X'].includes(stat.slice(stat.lastIndexOf(')') + 2, stat.lastIndexOf(')') + 3));
}

function parseCmdline(text: string): string[] {
  return text.split('\0').slice(0, -1);
}

/** Lines are `hierarchy:controllers:path`. Source: cgroups(7). */
export function parseProcCgroup(text: string): string[] {
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => line.split(':').slice(2).join(':'));
}

/** Mount points, in mount order: the last one is on top. */
export function listMountPoints(mountinfo = readFileSync('/proc/self/mountinfo', 'utf8')): string[] {
  return mountinfo
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => unescapeOctal(line.split(' ')[4] ?? ''));
}

/** Blanks, tabs, newlines and backslashes are written as three octal digits. Source: proc_pid_mountinfo(5). */
function unescapeOctal(text: string): string {
  return text.replace(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)));
}

/** Folders of a cgroup and of those below it in every hierarchy, deepest first. */
export function listCgroupFolders(cgroup: string, root = '/sys/fs/cgroup'): string[] {
  const hierarchies = [root, ...listFolder(root).map((name) => join(root, name))].filter((path) => !isLink(path));
  return hierarchies.flatMap((hierarchy) => listFoldersBelow(join(hierarchy, cgroup)));
}

/** @returns names; none for a folder that does not exist or is a file */
export function listFolder(path: string): string[] {
  return ifThere(() => readdirSync(path)) ?? [];
}

function listFoldersBelow(folder: string): string[] {
  const entries = ifThere(() => readdirSync(folder, { withFileTypes: true }));
  if (entries === undefined) return [];
  const below = entries
    .filter((entry) => entry.isDirectory())
    .flatMap((entry) => listFoldersBelow(join(folder, entry.name)));
  return [...below, folder];
}

function isLink(path: string): boolean {
  try {
    readlinkSync(path);
    return true;
  } catch {
    return false;
  }
}

/** Processes and cgroups may disappear while they are read: that is not an error. */
function ifThere<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch (error) {
    if (['ENOENT', 'ESRCH', 'ENOTDIR', 'ENODEV'].includes(errnoCode(error) ?? '')) return undefined;
    throw error;
  }
}
