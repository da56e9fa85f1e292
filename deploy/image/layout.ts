/** Processors, as images name them, and as Node.js does. */
export const architectures = { amd64: 'x64', arm64: 'arm64' } as const;
export type Architecture = keyof typeof architectures;

/** Everything of ours in the image is below. */
export const programDir = 'opt/netdra';
/** The program. `proto/` has to be beside its folder, as it is beside the folders of the sources. */
export const programPath = `${programDir}/lib/netdra.mjs`;
