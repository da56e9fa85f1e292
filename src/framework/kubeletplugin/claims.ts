import type { ErrorDetails } from '../../lib/errors.ts';
import { type DeviceClass, isKubeError, type PodResources, unlessMissing } from '../kube/index.ts';
import { type ClaimIdentity, type ClaimName, claimName } from '../metadata/index.ts';
import { KubeletPluginError } from './errors.ts';
import type { AllocatedClaim, ClaimObject } from './plugin.ts';

/** The calls to the API server that the framework needs for claims; `ResourceApi` of `src/framework/kube` implements them. */
export interface ClaimReader {
  /**
   * Reads the claim, uncached, in the shape of resource.k8s.io/v1, whatever version the cluster serves.
   * @throws any error of the API client, 404 included
   */
  readClaim(namespace: string, name: string, signal: AbortSignal): Promise<ClaimObject>;
  /**
   * Reads a DeviceClass, for claims of extended resources. Absent: containers find the files of such claims only by the names
   * of claim and request.
   * @throws any error of the API client, 404 included
   */
  readDeviceClass?(name: string, signal: AbortSignal): Promise<Pick<DeviceClass, 'spec'>>;
  /**
   * Reads a pod, for claims with several requests for one extended resource. Absent: a container that uses several of these
   * requests finds only one file under the name of the resource.
   * @throws any error of the API client, 404 included
   */
  readPod?(namespace: string, name: string, signal: AbortSignal): Promise<PodResources>;
}

const podClaimNameAnnotation = 'resource.kubernetes.io/pod-claim-name';
const extendedResourceAnnotation = 'resource.kubernetes.io/extended-resource-claim';
/**
 * Prefix of a DeviceClass's implicit extended resource name, under which pods can request any class. Source: resource.k8s.io/v1
 * `ResourceDeviceClassPrefix`.
 */
const implicitPrefix = 'deviceclass.resource.kubernetes.io/';

export interface ClaimSources {
  claims: ClaimReader;
  /** Records of claims with metadata. Absent: no claim has metadata files. */
  metadata?: { isNamePrepared(claim: ClaimName): Promise<boolean> } | undefined;
}

/**
 * Fetches the claims of one kubelet call concurrently and checks each. As in the Go helper, one failure fails the whole call,
 * with the Go helper's error texts, and the kubelet retries all claims. Accepts a claim that is being deleted: it keeps its
 * allocation while it is reserved for a pod.
 * @throws KubeletPluginError `claim-unavailable`
 */
export async function fetchClaims(
  { claims: reader, metadata }: ClaimSources,
  claims: ClaimIdentity[],
  signal: AbortSignal,
): Promise<AllocatedClaim[]> {
  const fetched = await Promise.all(claims.map((claim) => fetchClaim(reader, claim, signal)));
  // The kubelet's call names all claims of a pod that are not prepared yet.
  const podsOf = async (claim: ClaimName): Promise<string[]> => {
    const other = fetched.find(({ identity }) => claimName(identity) === claimName(claim));
    if (other !== undefined) return other.podUids;
    return (await metadata?.isNamePrepared(claim)) === true ? await readPods(reader, claim, signal) : [];
  };
  return await Promise.all(
    fetched.map(async (claim) => {
      const { identity, podClaimName: name, podUids } = claim;
      if (!name) return claim;
      const others = await podsOf({ namespace: identity.namespace, name });
      return others.some((uid) => podUids.includes(uid)) ? { ...claim, hasNamesake: true } : claim;
    }),
  );
}

/**
 * Returns the UIDs of the pods that may use a claim now. Reads the claim again, since a pod may have joined since its prepare.
 */
async function readPods(reader: ClaimReader, { namespace, name }: ClaimName, signal: AbortSignal): Promise<string[]> {
  try {
    return podUidsOf(await reader.readClaim(namespace, name, signal));
  } catch (cause) {
    if (isKubeError(cause, 'api-not-found')) return [];
    const subject = claimName({ namespace, name });
    const details = { claim: subject, cause, retriable: true };
    throw new KubeletPluginError('claim-unavailable', `retrieve claim ${subject}`, details);
  }
}

function podUidsOf({ status }: ClaimObject): string[] {
  return (status?.reservedFor ?? []).filter(({ resource }) => resource === 'pods').map(({ uid }) => uid);
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
  // The kubelet checks this too, but before its call. Devices of an unreserved claim may go to another claim at any time.
  if (consumers.length === 0) throw refuse(`claim ${subject} is not reserved for any pod`);
  const annotations = object.metadata.annotations ?? {};
  const extended =
    annotations[extendedResourceAnnotation] === 'true'
      ? await readExtendedResources(reader, object, signal).catch((cause) => {
          throw refuse(`retrieve the extended resources of claim ${subject}`, { cause, retriable: true });
        })
      : undefined;
  return {
    identity: claim,
    podClaimName: annotations[podClaimNameAnnotation],
    ...extended,
    results: object.status.allocation.devices?.results ?? [],
    podUids: podUidsOf(object),
    object,
  };
}

/** Reads the extended resource names of a claim's requests. A request whose class was deleted has only the implicit name. */
async function readExtendedResources(
  reader: ClaimReader,
  claim: ClaimObject,
  signal: AbortSignal,
): Promise<Pick<AllocatedClaim, 'extendedResources' | 'sharers'>> {
  const { spec } = claim;
  const requests = (spec.devices?.requests ?? []).flatMap(({ name, exactly }) =>
    exactly === undefined ? [] : [[name, exactly.deviceClassName] as const],
  );
  const classNames = [...new Set(requests.map(([, className]) => className))];
  const read = async (className: string): Promise<[string, string[]]> => {
    const found = reader.readDeviceClass && (await unlessMissing(reader.readDeviceClass(className, signal)));
    const own = found?.spec.extendedResourceName;
    return [className, [...(own === undefined ? [] : [own]), `${implicitPrefix}${className}`]];
  };
  const names = new Map(await Promise.all(classNames.map(read)));
  const extendedResources = new Map(requests.map(([name, className]) => [name, names.get(className) ?? []]));
  // A container can have several requests for one resource only if they have the same class.
  if (classNames.length === requests.length) return { extendedResources };
  return { extendedResources, sharers: await readSharers(reader, claim, new Map(requests), signal) };
}

/**
 * Reads from the pod's status which containers have several requests for one resource. The scheduler writes this status before
 * it binds the pod.
 * @param classes class names by the name of a request
 * @returns names of such containers, by the name of a request
 */
async function readSharers(
  reader: ClaimReader,
  { metadata, status }: ClaimObject,
  classes: ReadonlyMap<string, string>,
  signal: AbortSignal,
): Promise<Map<string, string[]>> {
  const [owner] = (status?.reservedFor ?? []).filter(({ resource }) => resource === 'pods');
  const pod = owner && (await reader.readPod?.(metadata?.namespace ?? '', owner.name, signal));
  if (pod !== undefined && pod.metadata?.uid !== owner?.uid) throw new Error(`pod ${owner?.name} got replaced`);
  const { resourceClaimName, requestMappings = [] } = pod?.status?.extendedResourceClaimStatus ?? {};
  const own = resourceClaimName === metadata?.name ? requestMappings : [];
  const mapped = own.filter(({ requestName }) => classes.has(requestName));
  const byResource = Map.groupBy(mapped, ({ containerName, requestName }) =>
    JSON.stringify([containerName, classes.get(requestName)]),
  );
  const shared = [...byResource.values()].filter(
    (mappings) => new Set(mappings.map(({ requestName }) => requestName)).size > 1,
  );
  const byRequest = Map.groupBy(shared.flat(), ({ requestName }) => requestName);
  return new Map(
    [...byRequest].map(([request, mappings]) => [
      request,
      [...new Set(mappings.map(({ containerName }) => containerName))],
    ]),
  );
}
