/** Processors, as images name them, and as Node.js does. */
export const architectures = { amd64: 'x64', arm64: 'arm64' } as const;
export type Architecture = keyof typeof architectures;

/** Everything of ours in the image is below. */
export const programDir = 'opt/netdra';
/** The program. `proto/` has to be beside its folder, as it is beside the folders of the sources. */
export const programPath = `${programDir}/lib/netdra.mjs`;

/** What containers wait in: the driver copies it to the node. `src/gate/install.ts` looks for it beside the program's folder. */
export const gatePath = `${programDir}/bin/netdra-gate`;

/** What V8 has made of the program: see `compile-cache.ts`. */
export const cacheDir = `${programDir}/cache`;

/** What Node.js is started with, before the program. Why: docs/performance.md. */
export const nodeFlags: readonly string[] = [
  '--max-semi-space-size=2',
  '--optimize-for-size',
  '--no-opt',
  '--no-maglev',
  // A thread that compiles waits for the main thread to collect garbage, and `process.exit` for that thread: for ever.
  '--no-concurrent-sparkplug',
];

/** The environment that the image sets. @param imageDir what the image has at `/`, default the image itself */
export function nodeEnv(imageDir = ''): Record<string, string> {
  return {
    NODE_ENV: 'production',
    NODE_COMPILE_CACHE: `${imageDir}/${cacheDir}`,
    // Wherever it lies, not only where it was made.
    NODE_COMPILE_CACHE_PORTABLE: '1',
  };
}
