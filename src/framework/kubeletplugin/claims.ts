import { defined } from '../../lib/defined.ts';
import type { ErrorDetails } from '../../lib/errors.ts';
import { type DeviceClass, isKubeError } from '../kube/index.ts';
import { type ClaimIdentity, claimName } from '../metadata/index.ts';
import { KubeletPluginError } from './errors.ts';
import type { AllocatedClaim, ClaimObject } from './plugin.ts';

/** The calls to the API server that the framework needs for claims; `ResourceApi` of `src/framework/kube` implements them. */
export interface ClaimReader {
  /**
   * The claim in the shape of resource.k8s.io/v1, whatever version the cluster serves. Not from a cache.
   * @throws whatever the API client throws, 404 included
   */
  readClaim(namespace: string, name: string, signal: AbortSignal): Promise<ClaimObject>;
  /**
   * For claims of extended resources. Absent: their files are found by the names of claim and request only.
   * @throws whatever the API client throws, 404 included
   */
  readDeviceClass?(name: string, signal: AbortSignal): Promise<Pick<DeviceClass, 'spec'>>;
}

const podClaimNameAnnotation = 'resource.kubernetes.io/pod-claim-name';
const extendedResourceAnnotation = 'resource.kubernetes.io/extended-resource-claim';
/** Before the name of a class: every class can be asked for by this name. Source: resource.k8s.io/v1 `ResourceDeviceClassPrefix`. */
const implicitPrefix = 'deviceclass.resource.kubernetes.io/';

/**
 * Fetches the claims of one kubelet call concurrently and checks each. As in the Go helper, any failure fails the whole
 * call, with the same texts, and the kubelet retries all of them. A claim that is being deleted is still accepted:
 * while it is reserved for a pod, its allocation stays.
 * @throws KubeletPluginError `claim-unavailable`
 */
export async function fetchClaims(
  reader: ClaimReader,
  claims: ClaimIdentity[],
  signal: AbortSignal,
): Promise<AllocatedClaim[]> {
  return await Promise.all(claims.map((claim) => fetchClaim(reader, claim, signal)));
}

async function fetchClaim(reader: ClaimReader, claim: ClaimIdentity, signal: AbortSignal): Promise<AllocatedClaim> {
  const subject = claimName(claim);
  const refuse = (message: string, more: ErrorDetails = {}) =>
    new KubeletPluginError('claim-unavailable', message, { claim: subject, ...more });
  const object = await reader.readClaim(claim.namespace, claim.name, signal).catch((cause) => {
    throw refuse(`retrieve claim ${subject}`, { cause, retriable: true });
  });
  if (object.status?.allocation === undefined) throw refuse(`claim ${subject} not allocated`);
  if (object.metadata?.uid !== claim.uid) throw refuse(`claim ${subject} got replaced`);
  const consumers = object.status.reservedFor ?? [];
  // The kubelet checks this too, but earlier. Devices of an unreserved claim may go to another claim at any time.
  if (consumers.length === 0) throw refuse(`claim ${subject} is not reserved for any pod`);
  const annotations = object.metadata.annotations ?? {};
  const extendedResources =
    annotations[extendedResourceAnnotation] === 'true'
      ? await readExtendedResources(reader, object, signal).catch((cause) => {
          throw refuse(`retrieve the extended resources of claim ${subject}`, { cause, retriable: true });
        })
      : undefined;
  return {
    identity: claim,
    podClaimName: annotations[podClaimNameAnnotation],
    ...defined({ extendedResources }),
    results: object.status.allocation.devices?.results ?? [],
    podUids: consumers.filter(({ resource }) => resource === 'pods').map(({ uid }) => uid),
    object,
  };
}

/** A class that is gone by now has its implicit name only. */
async function readExtendedResources(reader: ClaimReader, { spec }: ClaimObject, signal: AbortSignal) {
  const requests = (spec.devices?.requests ?? []).flatMap(({ name, exactly }) =>
    exactly === undefined ? [] : [[name, exactly.deviceClassName] as const],
  );
  const classNames = [...new Set(requests.map(([, className]) => className))];
  const read = async (className: string): Promise<[string, string[]]> => {
    const found = await reader.readDeviceClass?.(className, signal).catch((error: unknown) => {
      if (isKubeError(error, 'api-not-found')) return undefined;
      throw error;
    });
    const own = found?.spec.extendedResourceName;
    return [className, [...(own === undefined ? [] : [own]), `${implicitPrefix}${className}`]];
  };
  const names = new Map(await Promise.all(classNames.map(read)));
  return new Map(requests.map(([name, className]) => [name, names.get(className) ?? []]));
}
