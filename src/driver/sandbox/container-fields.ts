import type { DecodeOptions, Container as NriContainer, PodSandbox as NriSandbox } from '../../../nri/index.ts';

/** Prefix of the variable that marks containers with files of a claim but without its gate. */
export const claimMarker = 'NETDRA_CLAIM_';

/** Prefix of the variables that dra-driver-cpu gives to containers with exclusive CPUs: `DRA_CPUSET_<claim UID>=<CPUs>`. */
export const draPrefix = 'DRA_CPUSET_';

/** Fields of which tenants can write any number, and that the driver does not read. */
const unreadFields = ['labels', 'annotations', 'args'] as const;

/** Sandboxes and containers without the fields that are not decoded, so that no code can rely on one of them. */
export type PodSandbox = Omit<NriSandbox, (typeof unreadFields)[number]>;
export type Container = Omit<NriContainer, (typeof unreadFields)[number]>;

/**
 * Returns what the driver reads of pods and containers: no value of a variable, and of the rest of what tenants can write in
 * any number only the mounts of its own files. Both kinds of variables count as many long before the library leaves further
 * ones out.
 * @param mountSources see `ClaimMetadata.mountSources`
 */
export function decodedFields(mountSources: readonly string[]): DecodeOptions {
  return { omit: unreadFields, envNames: [claimMarker, draPrefix], mountSources };
}
