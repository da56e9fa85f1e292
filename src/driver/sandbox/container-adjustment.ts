import type { ContainerAdjustment } from '../../../nri/index.ts';
import type { ClaimMetadata } from '../../framework/metadata/index.ts';
import { containerEnv } from '../dialects/pod-dialects.ts';
import type { StoredClaim } from '../model/index.ts';
import type { StoredClaims } from '../state/index.ts';
import type { StartingContainer } from './start-guard.ts';

export interface ContainerAdjustmentOptions {
  store: StoredClaims;
  metadata: Pick<ClaimMetadata, 'isAnyUsedBy' | 'mountsFor'>;
}

/**
 * Returns the adjustment of a container that has several requests for one extended resource: one variable and one file with
 * the VFs of all these requests. CDI would give it a variable and a file for each request, all under the same names, and the
 * runtime would keep only the last ones.
 * @returns `undefined` for any other container
 * @throws StateError, MetadataError: without the adjustment the container would see only some of its VFs
 */
export function containerAdjustment(
  { store, metadata }: ContainerAdjustmentOptions,
  { uid }: { uid: string },
  container: StartingContainer,
): ContainerAdjustment | undefined {
  const { name } = container;
  const claims = claimsOf(store, uid, () => metadata.isAnyUsedBy(container)).filter(({ state, devices }) => {
    return state === 'prepared' && devices.some(({ sharers }) => sharers?.includes(name) === true);
  });
  if (claims.length === 0) return undefined;
  const env = Object.entries(containerEnv(claims, name)).map(([variable, value]) => ({ name: variable, value }));
  const mounts = claims.flatMap(({ identity }) => metadata.mountsFor(identity, name));
  return {
    env,
    // In a rolling update, the runtime asks two instances of the driver.
    overrides: true,
    mounts: mounts.map(({ hostPath: source, containerPath: destination, options }) => {
      return { source, destination, type: 'bind', options };
    }),
  };
}

/**
 * Returns the pod's claims. If the store is unreadable, returns none for a container that uses no claim of this driver.
 * @throws StateError if the store is unreadable and the container uses a claim
 */
function claimsOf(store: StoredClaims, podUid: string, usesAny: () => boolean): StoredClaim[] {
  try {
    return store.claimsOfPod(podUid);
  } catch (error) {
    if (usesAny()) throw error;
    return [];
  }
}
