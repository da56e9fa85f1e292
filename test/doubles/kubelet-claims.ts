import type { ResourceV1ResourceClaim, V1Pod } from '@kubernetes/client-node';
import type { WireClaim } from './kubelet-dra-client.ts';

/** What the kubelet needs of a device that a driver has prepared. */
interface Device {
  requestNames: string[];
  cdiDeviceIds: string[];
}

/** The kubelet's record of a claim. */
export interface ClaimInfo extends WireClaim {
  podUids: Set<string>;
  /** Devices by driver, an entry for each driver of the allocation. */
  devices: Map<string, readonly Device[]>;
  /** The kubelet forgets this when it restarts, and then asks again. */
  prepared: boolean;
}

/** A claim of a pod that is to start. */
export interface NeededClaim extends WireClaim {
  /** Of its allocation. */
  drivers: readonly string[];
}

/** A driver's answer, by the UID of each claim. */
type Answer = ReadonlyMap<string, { devices?: readonly Device[]; error?: string }>;

/** How the kubelet reaches drivers. */
export interface DriverCalls<Driver> {
  /** @throws Error if it is not registered */
  find: (name: string) => Driver;
  /** @throws Error if there is no answer */
  prepare: (
    driver: Driver,
    claims: WireClaim[],
    by: { podUid: string; signal: AbortSignal | undefined },
  ) => Promise<Answer>;
  /** @throws Error if there is no answer */
  unprepare: (driver: Driver, claims: WireClaim[]) => Promise<Answer>;
}

/** The kubelet's claims, and what it has drivers do with them. Source: `pkg/kubelet/cm/dra/manager.go`. */
export class ClaimManager<Driver> {
  readonly #calls: DriverCalls<Driver>;
  readonly #takesNamesakes: boolean;
  readonly #claims = new Map<string, ClaimInfo>();
  /** Claims with an unanswered NodeUnprepareResources call. */
  readonly #unpreparing = new Set<ClaimInfo>();

  /** @param takesNamesakes whether it takes a claim while it has an earlier one of the same name, as one that forgets claims */
  constructor(calls: DriverCalls<Driver>, takesNamesakes = false) {
    this.#calls = calls;
    this.#takesNamesakes = takesNamesakes;
  }

  get claims(): ClaimInfo[] {
    return [...this.#claims.values()];
  }

  get(namespace: string, name: string): ClaimInfo | undefined {
    return this.claims.find((info) => info.namespace === namespace && info.name === name);
  }

  /**
   * Has all claims of a pod prepared that are not prepared yet: one call for each driver, with all its claims.
   * @returns all of them
   * @throws Error
   */
  async prepare(podUid: string, claims: readonly NeededClaim[], signal?: AbortSignal): Promise<ClaimInfo[]> {
    const infos = claims.map((claim) => this.#getOrAdd(claim));
    // A call that has been sent cannot be withdrawn, and calls may overtake each other.
    const busy = infos.find((info) => this.#unpreparing.has(info));
    if (busy !== undefined) throw new Error(`ResourceClaim ${busy.name} is being unprepared`);
    for (const { podUids } of infos) podUids.add(podUid);
    const due = infos.filter(({ prepared }) => !prepared);
    for (const [name, batch] of batchesOf(due)) {
      const answer = await this.#calls.prepare(this.#calls.find(name), batch.map(toWire), { podUid, signal });
      for (const [info, devices = []] of resultsOf('NodePrepareResources', batch, answer))
        info.devices.set(name, devices);
    }
    for (const info of due) info.prepared = true;
    return infos;
  }

  /**
   * Has claims unprepared that no pod uses any more, and forgets them. After an error all their drivers are called again
   * the next time, including those that had succeeded.
   * @throws Error
   */
  async unprepare(infos: readonly ClaimInfo[]): Promise<void> {
    const batches = [...batchesOf(infos)].map(([name, batch]) => ({ driver: this.#calls.find(name), batch }));
    for (const info of infos) {
      info.prepared = false;
      this.#unpreparing.add(info);
    }
    try {
      for (const { driver, batch } of batches) {
        const answer = await this.#calls.unprepare(driver, batch.map(toWire));
        resultsOf('NodeUnprepareResources', batch, answer);
      }
    } finally {
      for (const info of infos) this.#unpreparing.delete(info);
    }
    for (const { uid } of infos) this.#claims.delete(uid);
  }

  /** @param isStateLost whether it also forgets the claims themselves */
  restart(isStateLost: boolean): void {
    this.#unpreparing.clear();
    if (isStateLost) this.#claims.clear();
    for (const info of this.#claims.values()) info.prepared = false;
  }

  /** @throws Error if another claim of that name still exists */
  #getOrAdd({ namespace, name, uid, drivers }: NeededClaim): ClaimInfo {
    const known = this.#claims.get(uid);
    if (known !== undefined) return known;
    const earlier = this.#takesNamesakes ? undefined : this.get(namespace, name);
    if (earlier !== undefined) {
      throw new Error(
        `old ResourceClaim with same name ${name} and different UID ${earlier.uid} still exists (new UID ${uid})`,
      );
    }
    const devices = new Map(drivers.map((driver): [string, Device[]] => [driver, []]));
    const info = { namespace, name, uid, podUids: new Set<string>(), devices, prepared: false };
    this.#claims.set(uid, info);
    return info;
  }
}

/** Claims by driver. */
function batchesOf(infos: readonly ClaimInfo[]): Map<string, ClaimInfo[]> {
  const drivers = new Set(infos.flatMap(({ devices }) => [...devices.keys()]));
  return new Map([...drivers].map((name) => [name, infos.filter(({ devices }) => devices.has(name))]));
}

function toWire({ namespace, uid, name }: ClaimInfo): WireClaim {
  return { namespace, uid, name };
}

type Result = [info: ClaimInfo, devices: readonly Device[] | undefined];

/** Of the entries in the answer the kubelet only looks at errors, and counts them. @throws Error */
function resultsOf(method: string, batch: readonly ClaimInfo[], answer: Answer): Result[] {
  const results = [...answer].map(([uid, { devices, error }]): Result => {
    const info = batch.find((candidate) => candidate.uid === uid);
    if (info === undefined) throw new Error(`${method} returned result for unknown claim UID ${uid}`);
    if (error !== undefined && error !== '')
      throw new Error(`${method} failed for ResourceClaim ${info.name}: ${error}`);
    return [info, devices];
  });
  const skipped = batch.length - answer.size;
  if (skipped !== 0) throw new Error(`${method} skipped ${skipped} ResourceClaims`);
  return results;
}

/** A claim of a pod and its name within the pod's containers. */
export interface PodClaim {
  podClaimName: string;
  /** `undefined`: the pod needs no claim after all. */
  claimName: string | undefined;
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
