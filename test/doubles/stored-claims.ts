import type { StoredClaim } from '../../src/driver/model/index.ts';
import type { StoredClaims } from '../../src/driver/state/index.ts';

/** Returns the claims of a store that has those which `claims` returns. */
export function storedClaims(claims: () => readonly StoredClaim[]): StoredClaims {
  return {
    claims,
    claim: (uid) => claims().find(({ identity }) => identity.uid === uid),
    claimsOfPod: (podUid) => claims().filter(({ podUids }) => podUids.includes(podUid)),
    holderOf: (address) => claims().find(({ devices }) => devices.some(({ pciAddress }) => pciAddress === address)),
  };
}
