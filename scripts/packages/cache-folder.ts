import { homedir } from 'node:os';
import { join } from 'node:path';

/**
 * The folder of downloads and builds, which all checkouts of a user share: everything in it is named by a hash of what
 * it is made from. `NETDRA_CACHE`, or the folder of the XDG Base Directory Specification.
 */
export function cacheFolder({ NETDRA_CACHE, XDG_CACHE_HOME, HOME = homedir() }: NodeJS.ProcessEnv): string {
  return NETDRA_CACHE || join(XDG_CACHE_HOME || join(HOME, '.cache'), 'netdra');
}
