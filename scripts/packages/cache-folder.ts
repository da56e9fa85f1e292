import { fileURLToPath } from 'node:url';

/** The folder of the cache: `NETDRA_CACHE`, or `.cache` in the repository. */
export function cacheFolder(env: NodeJS.ProcessEnv): string {
  return env.NETDRA_CACHE ?? fileURLToPath(new URL('../../.cache', import.meta.url));
}
