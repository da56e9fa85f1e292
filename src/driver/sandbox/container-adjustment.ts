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
 * Returns the adjustment of a container that has several requests for one extended resource: a variable and a file with the
 * VFs of all of them. CDI would give it those of each request under the same names, of which the runtime keeps the last
 * ones.
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
    // In a rolling update the runtime asks two instances.
    overrides: true,
    mounts: mounts.map(({ hostPath: source, containerPath: destination, options }) => {
      return { source, destination, type: 'bind', options };
    }),
  };
}

/**
 * Returns the pod's claims. While the store is unreadable: none for a container without a claim of ours.
 * @throws StateError for any other
 */
function claimsOf(store: StoredClaims, podUid: string, usesAny: () => boolean): StoredClaim[] {
  try {
    return store.claimsOfPod(podUid);
  } catch (error) {
    if (usesAny()) throw error;
    return [];
  }
}
