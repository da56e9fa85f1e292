import type { NodeFacts } from '../../../../src/driver/composition/ports.ts';

/** The figures of a node without devices and claims. */
export const facts: NodeFacts = {
  devicesOffered: () => 0,
  deviceCounts: () => ({ withheld: {}, inCondition: {}, free: 0, pfs: [] }),
  deviceProblems: () => 0,
  isPolicyValid: () => true,
  claimsByState: () => ({}),
  devicesUsed: () => 0,
  devicesAttached: () => 0,
  waitsMs: () => [],
  metadataFiles: async () => 0,
};
