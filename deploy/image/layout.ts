/** Processors, by their names in images and in Node.js. */
export const architectures = { amd64: 'x64', arm64: 'arm64' } as const;
export type Architecture = keyof typeof architectures;

/** Everything of ours in the image is below this folder. */
export const programDir = 'opt/netdra';
/** The program. `proto/` has to be beside its folder, as it is beside the source folders. */
export const programPath = `${programDir}/lib/netdra.mjs`;

/** Node.js in the image. */
export const nodePath = '/usr/local/bin/node';

/** The program as a command in PATH, for `kubectl exec`. */
export const commandPath = 'usr/local/bin/netdra';

/** Containers wait in it: the driver copies it to the node. `src/framework/metadata/gate/install.ts` finds it beside the program's folder. */
export const gatePath = `${programDir}/bin/netdra-gate`;

/** V8's compiled code of the program: see `compile-cache.ts`. */
export const cacheDir = `${programDir}/cache`;

/** Options of Node.js, before the program. Why: docs/decisions/0065-where-the-drivers-time-goes.md. */
export const nodeFlags: readonly string[] = [
  '--optimize-for-size',
  '--heap-growing-percent=50',
  '--no-opt',
  '--no-maglev',
  // A compiling thread waits for the main thread to collect garbage, and `process.exit` for that thread: a deadlock.
  '--no-concurrent-sparkplug',
];

/** The environment that the image sets. @param imageDir content of the image's `/`, default the image itself */
export function nodeEnv(imageDir = ''): Record<string, string> {
  return {
    NODE_ENV: 'production',
    NODE_COMPILE_CACHE: `${imageDir}/${cacheDir}`,
    // Valid wherever the program is, not only where it was compiled.
    NODE_COMPILE_CACHE_PORTABLE: '1',
  };
}
