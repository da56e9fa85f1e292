import type { ResourceV1ResourceClaim, V1Pod } from '@kubernetes/client-node';
import type { WireClaim, WireDevice } from './kubelet-dra-client.ts';

/** The kubelet's record of a claim. */
export interface ClaimInfo extends WireClaim {
  podUids: Set<string>;
  /** Devices by driver, an entry for each driver of the allocation. Devices are only ever added. */
  devices: Map<string, WireDevice[]>;
  prepared: boolean;
}

/** A claim of a pod and its name within the pod's containers. */
export interface PodClaim {
  podClaimName: string;
  /** `undefined`: the pod needs no claim after all. */
  claimName: string | undefined;
}

/** The kubelet's cache of claims. */
export class ClaimCache {
  readonly #claims = new Map<string, ClaimInfo>();

  get(namespace: string, name: string): ClaimInfo | undefined {
    return this.#claims.get(`${namespace}/${name}`);
  }

  /** @throws if another claim of that name still exists */
  getOrAdd(claim: ResourceV1ResourceClaim): ClaimInfo {
    const { namespace = '', name = '', uid = '' } = claim.metadata ?? {};
    const known = this.get(namespace, name);
    if (known !== undefined && known.uid !== uid) {
      throw new Error(
        `old ResourceClaim with same name ${name} and different UID ${known.uid} still exists (new UID ${uid})`,
      );
    }
    const devices = new Map(driversOf(claim).map((driver): [string, WireDevice[]] => [driver, []]));
    const info = known ?? { namespace, name, uid, podUids: new Set<string>(), devices, prepared: false };
    this.#claims.set(`${namespace}/${name}`, info);
    return info;
  }

  delete(info: ClaimInfo): void {
    this.#claims.delete(`${info.namespace}/${info.name}`);
  }

  /** A new kubelet process does not know which claims are prepared. Their devices are in its checkpoint. */
  restart(): void {
    for (const info of this.#claims.values()) info.prepared = false;
  }
}

export function driversOf(claim: ResourceV1ResourceClaim): string[] {
  return [...new Set((claim.status?.allocation?.devices?.results ?? []).map(({ driver }) => driver))];
}

/** @throws for a template whose claim does not exist yet */
export function podClaimsOf(pod: V1Pod): PodClaim[] {
  return (pod.spec?.resourceClaims ?? []).map(({ name, resourceClaimName }) => {
    if (resourceClaimName !== undefined) return { podClaimName: name, claimName: resourceClaimName };
    const generated = pod.status?.resourceClaimStatuses?.find((entry) => entry.name === name);
    if (generated === undefined)
      throw new Error(`prepare resource claim: pod claim ${name}: ResourceClaim not created yet`);
    return { podClaimName: name, claimName: generated.resourceClaimName };
  });
}

/** The CDI names of a claim for a container that uses the whole claim or one request of it. */
export function cdiDevicesOf(info: ClaimInfo, request: string | undefined): string[] {
  return [...info.devices.values()]
    .flat()
    .filter(({ requestNames }) => request === undefined || requestNames.length === 0 || requestNames.includes(request))
    .flatMap(({ cdiDeviceIds }) => cdiDeviceIds);
}
