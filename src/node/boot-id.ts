import { readFile } from 'node:fs/promises';
import { NetdraError } from '../lib/errors.ts';

/** File with the kernel's id of the current boot. Source: random(4), `boot_id`. */
const defaultBootIdPath = '/proc/sys/kernel/random/boot_id';

/** @throws NetdraError `boot-id-unknown`: without the ID nothing shows which stored facts still hold */
export async function readBootId(path: string = defaultBootIdPath): Promise<string> {
  try {
    const bootId = (await readFile(path, 'utf8')).trim();
    if (bootId !== '') return bootId;
    throw new Error('it is empty');
  } catch (cause) {
    throw new NetdraError('boot-id-unknown', `cannot read the boot id of the node from ${path}`, { cause, path });
  }
}
