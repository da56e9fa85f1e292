import type { ResourceV1ResourceClaim, V1Pod } from '@kubernetes/client-node';
import type { WireClaim, WireDevice } from './kubelet-dra-client.ts';

/** What the kubelet remembers of a claim. All but `prepared` is in its checkpoint. */
export interface ClaimInfo extends WireClaim {
  podUids: Set<string>;
  /** Driver to devices, an entry for each driver of the allocation. Devices are only ever added. */
  devices: Map<string, WireDevice[]>;
  prepared: boolean;
}

/** A claim of a pod and the name that the pod's containers know it by. */
export interface PodClaim {
  podClaimName: string;
  /** `undefined`: the pod turned out to need no claim. */
  claimName: string | undefined;
  /** Made from a template: must belong to the pod. */
  isGenerated: boolean;
}

/** The kubelet's memory of claims, with the file that outlives it played by a copy. */
export class ClaimCache {
  #claims = new Map<string, ClaimInfo>();
  #checkpoint = new Map<string, ClaimInfo>();

  get(namespace: string, name: string): ClaimInfo | undefined {
    return this.#claims.get(`${namespace}/${name}`);
  }

  /** @throws if the name was taken by a claim that is still there */
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

  all(): ClaimInfo[] {
    return [...this.#claims.values()];
  }

  /** Writes the checkpoint. */
  save(): void {
    this.#checkpoint = structuredClone(this.#claims);
  }

  /** What a new kubelet process finds: the last checkpoint, and nothing known to be prepared. */
  reload(): void {
    this.#claims = structuredClone(this.#checkpoint);
    for (const info of this.#claims.values()) info.prepared = false;
  }
}

export function driversOf(claim: ResourceV1ResourceClaim): string[] {
  return [...new Set((claim.status?.allocation?.devices?.results ?? []).map(({ driver }) => driver))];
}

/** @throws for a template whose claim does not exist yet */
export function podClaimsOf(pod: V1Pod): PodClaim[] {
  return (pod.spec?.resourceClaims ?? []).map(({ name, resourceClaimName }) => {
    if (resourceClaimName !== undefined)
      return { podClaimName: name, claimName: resourceClaimName, isGenerated: false };
    const generated = pod.status?.resourceClaimStatuses?.find((entry) => entry.name === name);
    if (generated === undefined)
      throw new Error(`prepare resource claim: pod claim ${name}: ResourceClaim not created yet`);
    return { podClaimName: name, claimName: generated.resourceClaimName, isGenerated: true };
  });
}

/** What the kubelet checks of a claim before anything else. @throws Error */
export function checkClaim(pod: V1Pod, { isGenerated }: PodClaim, claim: ResourceV1ResourceClaim): void {
  const { name = '', uid = '' } = pod.metadata ?? {};
  const claimName = claim.metadata?.name;
  const owners = claim.metadata?.ownerReferences ?? [];
  if (isGenerated && !owners.some((owner) => owner.uid === uid && owner.controller === true)) {
    throw new Error(`ResourceClaim ${claimName} was not created for pod ${name} (pod is not owner)`);
  }
  if (!(claim.status?.reservedFor ?? []).some((consumer) => consumer.uid === uid)) {
    throw new Error(`pod ${name} (${uid}) is not allowed to use ResourceClaim ${claimName} (${claim.metadata?.uid})`);
  }
  if (claim.status?.allocation === undefined) throw new Error(`ResourceClaim ${claimName} is not allocated`);
}

/** The CDI names of a claim for a container that uses the whole claim or one request of it. */
export function cdiDevicesOf(info: ClaimInfo, request: string | undefined): string[] {
  return [...info.devices.values()]
    .flat()
    .filter(({ requestNames }) => request === undefined || requestNames.length === 0 || requestNames.includes(request))
    .flatMap(({ cdiDeviceIds }) => cdiDeviceIds);
}
