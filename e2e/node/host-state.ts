/** Reads what the kernel says about processes, mounts, cgroups and links. For the whole namespace we are in. */
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';
import { errnoCode } from '../../src/errors.ts';

export interface ProcessInfo {
  pid: number;
  args: string[];
  /** Paths of its cgroups, one a hierarchy, from the top. */
  cgroups: string[];
}

/** Every process but zombies, which are gone but for being waited for. */
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

/** Where something is mounted, in the order of mounting: the last one is on top. */
export function listMountPoints(mountinfo = readFileSync('/proc/self/mountinfo', 'utf8')): string[] {
  return mountinfo
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => unescapeOctal(line.split(' ')[4] ?? ''));
}

/** Blanks, tabs, newlines and backslashes stand as three octal digits. Source: proc_pid_mountinfo(5). */
function unescapeOctal(text: string): string {
  return text.replace(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)));
}

/** Folders of a cgroup and of those below it in every hierarchy, deepest first. */
export function listCgroupFolders(cgroup: string, root = '/sys/fs/cgroup'): string[] {
  const hierarchies = [root, ...listFolder(root).map((name) => join(root, name))].filter((path) => !isLink(path));
  return hierarchies.flatMap((hierarchy) => listFoldersBelow(join(hierarchy, cgroup)));
}

/** @returns names; nothing for a folder that is not there or is a file */
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

/** Processes and cgroups go while one looks at them: that is no error. */
function ifThere<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch (error) {
    if (['ENOENT', 'ESRCH', 'ENOTDIR', 'ENODEV'].includes(errnoCode(error) ?? '')) return undefined;
    throw error;
  }
}
