import { readFileSync } from 'node:fs';
import { NetdraError } from './errors.ts';

/** File with the kernel's id of the current boot. Source: random(4), `boot_id`. */
const defaultBootIdPath = '/proc/sys/kernel/random/boot_id';

/** @throws NetdraError `boot-id-unknown`: without the ID nothing shows which stored facts still hold */
export function readBootId(path: string = defaultBootIdPath): string {
  try {
    const bootId = readFileSync(path, 'utf8').trim();
    if (bootId !== '') return bootId;
    throw new Error('it is empty');
  } catch (cause) {
    throw new NetdraError('boot-id-unknown', `cannot read the boot id of the node from ${path}`, { cause, path });
  }
}
