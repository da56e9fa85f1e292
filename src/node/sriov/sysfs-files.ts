import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { errnoCode } from '../../lib/errors.ts';
import { SriovError } from './errors.ts';

// All of these functions throw SriovError `sysfs-unreadable`, and `sysfs-malformed` for content that the kernel does not
// document.

/** Errors for missing files, and for attributes that a driver does not have for this device, or not at the moment. */
const absent = ['ENOENT', 'EOPNOTSUPP', 'ENOTSUP'];

export async function readText(path: string): Promise<string> {
  return (await attempt(path, () => readAttribute(path))).trim();
}

/** Reads a file as text; `undefined` if it is missing or the driver has no such attribute. */
export async function readOptionalText(path: string): Promise<string | undefined> {
  return (await unlessAbsent(path, () => readAttribute(path)))?.trim();
}

/**
 * Reads a file of an interface as text; `undefined` if the interface disappears. The kernel answers EINVAL while it
 * unregisters the interface, and ENODEV if that began after the file was opened.
 */
export async function readInterfaceText(path: string): Promise<string | undefined> {
  return (await unlessAbsent(path, () => readAttribute(path), [...absent, 'EINVAL', 'ENODEV']))?.trim();
}

/**
 * Reads an attribute. PCI attributes are read synchronously, since they are in memory: with 256 VFs, a trip to the thread
 * pool for each file took a third of a processor. Attributes of interfaces may have to wait while another process changes
 * interfaces.
 */
function readAttribute(path: string): string | Promise<string> {
  return path.includes('/net/') ? readFile(path, 'utf8') : readFileSync(path, 'utf8');
}

/** Reads an ID of four hexadecimal digits. @returns the digits, without the prefix `0x` */
export async function readId(path: string): Promise<string> {
  const text = await readText(path);
  const [, digits] = /^0x([0-9a-f]{4})$/.exec(text) ?? [];
  if (digits === undefined) throw malformed(path, text, 'an id such as 0x8086');
  return digits;
}

/** Returns the target of a symbolic link, unresolved; `undefined` if there is no link. */
export async function linkTarget(path: string): Promise<string | undefined> {
  return await unlessAbsent(path, () => readlinkSync(path));
}

/** Returns the names in a directory, sorted; `undefined` if it does not exist. */
export async function listOptionalDir(path: string): Promise<string[] | undefined> {
  return (await unlessAbsent(path, () => readdirSync(path)))?.sort();
}

export function parseCount(path: string, text: string): number {
  if (!/^\d{1,9}$/.test(text)) throw malformed(path, text, 'a number');
  return Number(text);
}

/** Runs a read, and translates errors of the file system. */
export async function attempt<T>(path: string, read: () => T | Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (cause) {
    const gone = ['ENOENT', 'ENODEV'].includes(errnoCode(cause) ?? '');
    const message = `cannot read ${path}`;
    const hint = gone ? 'the device was removed, or sysfs is not mounted there' : 'mount /sys and run as root';
    throw new SriovError('sysfs-unreadable', message, { cause, path, retriable: gone, hint });
  }
}

async function unlessAbsent<T>(
  path: string,
  read: () => T | Promise<T>,
  codes: readonly string[] = absent,
): Promise<T | undefined> {
  return await attempt(path, async () => {
    try {
      return await read();
    } catch (error) {
      if (codes.includes(errnoCode(error) ?? '')) return undefined;
      throw error;
    }
  });
}

function malformed(path: string, text: string, expected: string): SriovError {
  return new SriovError('sysfs-malformed', `${path} holds ${JSON.stringify(text)} instead of ${expected}`, { path });
}
