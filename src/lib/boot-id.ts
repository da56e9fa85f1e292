import { readFileSync } from 'node:fs';
import { NetdraError } from './errors.ts';

/** File with the ID of the kernel's current boot. Source: random(4), `boot_id`. */
const defaultBootIdPath = '/proc/sys/kernel/random/boot_id';

/**
 * Reads the ID of the current boot. @throws NetdraError `boot-id-unknown`: without the ID, stored facts of an earlier boot
 * cannot be recognized
 */
export function readBootId(path: string = defaultBootIdPath): string {
  try {
    const bootId = readFileSync(path, 'utf8').trim();
    if (bootId !== '') return bootId;
    throw new Error('it is empty');
  } catch (cause) {
    throw new NetdraError('boot-id-unknown', `cannot read the boot id of the node from ${path}`, { cause, path });
  }
}
