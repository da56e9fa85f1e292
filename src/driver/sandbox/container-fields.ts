import type { DecodeOptions } from '../../../nri/index.ts';

/** Prefix of the variable that marks containers with files of a claim but without its gate. */
export const claimMarker = 'NETDRA_CLAIM_';

/** Prefix of the variables that dra-driver-cpu gives to containers with exclusive CPUs: `DRA_CPUSET_<claim UID>=<CPUs>`. */
export const draPrefix = 'DRA_CPUSET_';

/**
 * What the driver reads of pods and containers: no value of a variable, and nothing else of which a tenant can write any
 * number. Both kinds of variables count as many long before the library leaves further ones out.
 */
export const decodedFields: DecodeOptions = {
  omit: ['labels', 'annotations', 'args', 'mounts'],
  envNames: [claimMarker, draPrefix],
};
