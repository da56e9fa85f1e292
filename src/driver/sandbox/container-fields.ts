import type { DecodeOptions, Container as NriContainer, PodSandbox as NriSandbox } from '../../../nri/index.ts';

/** Prefix of the variable that marks containers which have files of a claim but not its start gate. */
export const claimMarker = 'NETDRA_CLAIM_';

/** Prefix of the variables that dra-driver-cpu gives to containers with exclusive CPUs: `DRA_CPUSET_<claim UID>=<CPUs>`. */
export const draPrefix = 'DRA_CPUSET_';

/** Fields that the driver does not read; tenants can make them arbitrarily large. */
const unreadFields = ['labels', 'annotations', 'args'] as const;

/** Sandboxes and containers without the fields that are not decoded, so that no code can rely on them. */
export type PodSandbox = Omit<NriSandbox, (typeof unreadFields)[number]>;
export type Container = Omit<NriContainer, (typeof unreadFields)[number]>;

/**
 * Returns which fields of pods and containers are decoded. Tenants can write any number of variables and mounts, so only the
 * names of two kinds of variables and the mounts of the driver's own files are kept. The library leaves out variables only
 * above a number that the driver already treats as too many.
 * @param mountSources see `ClaimMetadata.mountSources`
 */
export function decodedFields(mountSources: readonly string[]): DecodeOptions {
  return { omit: unreadFields, envNames: [claimMarker, draPrefix], mountSources };
}
