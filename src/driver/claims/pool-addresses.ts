import { createHash } from 'node:crypto';
import { isKubeError, type KubeErrorCode, type OwnerReference, type ResourceApi } from '../../framework/kube/index.ts';
import type { AllocatedClaim } from '../../framework/kubeletplugin/index.ts';
import { baseRequest } from '../../framework/metadata/index.ts';
import type { AddressAllocator, AddressWish } from '../addresses/index.ts';
import { poolLabel } from '../api/address-pool.ts';
import { findContradictions } from '../api/config-rules.ts';
import { type DriverError, invalidConfig, refusal, type StoredDevice } from '../model/index.ts';

const hints: Partial<Record<KubeErrorCode, string>> = {
  'api-unserved': 'install the CustomResourceDefinitions of the chart: its value addressPools.enabled',
  'api-forbidden':
    'raise the ResourceQuota of the namespace, or give the driver the permissions of the chart, as the cause says',
};

export interface PoolAddressesOptions {
  addressPools: { assign: AddressAllocator['assign']; renew: AddressAllocator['renew'] };
  pods: { readPod: ResourceApi['readPod'] };
}

/**
 * Returns the devices with addresses and MAC addresses from their pools. They are assigned at prepare and stored with the
 * claim: a new sandbox and a restart of the driver do not depend on
 * the API server.
 * @throws DriverError `address-pool-unusable`, `address-held`, `config-invalid`
 */
export async function withPoolAddresses(
  claim: AllocatedClaim,
  devices: StoredDevice[],
  { addressPools, pods }: PoolAddressesOptions,
  signal: AbortSignal,
): Promise<StoredDevice[]> {
  checkKeys(claim, devices);
  const all: StoredDevice[] = [];
  for (const device of devices) {
    const { name: pool, key } = device.config.addressPool ?? {};
    if (pool === undefined) {
      all.push(device);
      continue;
    }
    const assign = async () => {
      const stable = key === undefined ? await statefulPodOf(claim, device, pods, signal) : { key, name: key };
      return await addressPools.assign(toWish(claim, device, pool, stable), signal);
    };
    const { addresses, macAddress } = await assign().catch((cause: unknown) => {
      throw unusable(claim, `request ${device.request} gets no address of NetworkAddressPool ${pool}`, cause);
    });
    // The hardware address of an InfiniBand interface cannot be set.
    const isEthernet = (device.offered.linkType ?? 'ethernet') === 'ethernet';
    const config = { ...(isEthernet && { macAddress }), ...device.config, addresses };
    // The configuration is checked again, since rules such as those for IPv6 and routes depend on the addresses.
    const problems = findContradictions({ ...config, addressPool: undefined });
    if (problems.length > 0) throw invalidConfig(claim, problems, ` with the addresses of NetworkAddressPool ${pool}`);
    all.push({ ...device, config });
  }
  return all;
}

/**
 * Renews the leases of a prepared claim's addresses, for the pod that has the claim now.
 * @throws DriverError `address-pool-unusable`, `address-held`, `config-invalid`
 */
export async function renewPoolAddresses(
  claim: AllocatedClaim,
  devices: readonly StoredDevice[],
  addressPools: PoolAddressesOptions['addressPools'],
  signal: AbortSignal,
): Promise<void> {
  for (const device of devices) {
    const { addressPool: { name: pool, key } = {}, addresses = [] } = device.config;
    const stable = key === undefined ? templateKey(claim, device) : { key, name: key };
    if (pool !== undefined && stable !== undefined)
      await addressPools.renew(toWish(claim, device, pool, stable), addresses, signal).catch((cause: unknown) => {
        throw unusable(
          claim,
          `request ${device.request} cannot renew its addresses of NetworkAddressPool ${pool}`,
          cause,
        );
      });
  }
}

/** Returns the error to throw: other errors than those of the API server already say enough. */
function unusable(claim: AllocatedClaim, problem: string, cause: unknown): unknown {
  if (!isKubeError(cause)) return cause;
  const details = { cause, retriable: true, hint: hints[cause.code] };
  return refusal(claim, 'address-pool-unusable', `: ${problem}`, details);
}

/**
 * Checks that no two requests use the same key of a pool: one of them would wait for the other's address. @throws DriverError
 * `config-invalid`
 */
export function checkKeys(claim: AllocatedClaim, devices: readonly StoredDevice[]): void {
  const requests = new Map<string, string>();
  for (const { request, config } of devices) {
    const { name, key } = config.addressPool ?? {};
    if (key === undefined) continue;
    const other = requests.get(`${name} ${key}`);
    if (other !== undefined) {
      const problem = `: requests ${other} and ${request} have the same addressPool.key ${key}`;
      throw refusal(claim, 'config-invalid', problem, { hint: 'use one key for each request' });
    }
    requests.set(`${name} ${key}`, request);
  }
}

const notFromTemplate = 'the claim is not from a template of its pod';

/**
 * Checks that a device with addresses from a pool has a key, which a claim that is not from a template needs.
 * @throws DriverError `config-invalid`
 */
export function checkKey(claim: AllocatedClaim, { request, config: { addressPool } }: StoredDevice): void {
  if (addressPool !== undefined && addressPool.key === undefined) throw keyRefusal(claim, request, notFromTemplate);
}

function keyRefusal(claim: AllocatedClaim, request: string, problem: string): DriverError {
  const hint =
    'set addressPool.key, which the class has to open, or give a StatefulSet a ResourceClaimTemplate for its pods';
  return refusal(claim, 'config-invalid', `: addressPool of request ${request} has no key, and ${problem}`, { hint });
}

interface StableKey {
  key: string;
  name: string;
  owner?: OwnerReference;
}

function toWish(
  { identity, object }: AllocatedClaim,
  { request }: StoredDevice,
  pool: string,
  { key, name, owner }: StableKey,
): AddressWish {
  const { namespace, name: claimName, uid } = identity;
  // The hash covers pool and key: the readable part of the name may be the same for two claims of a pod, or for two pools.
  const hash = createHash('sha256').update(`${pool} ${key}`).digest('hex').slice(0, 16);
  // A claim that is prepared for the first time has at most one consumer, which was checked before.
  const consumer = object.status?.reservedFor?.find(({ resource }) => resource === 'pods');
  const pod = { name: consumer?.name ?? '', uid: consumer?.uid ?? '' };
  return { namespace, claim: { name: claimName, uid, request }, pod, pool, key, name: `${name}-${hash}`, owner };
}

/**
 * Returns the key of a claim that was created from a template for a pod; `undefined` for other claims. Does not check whether
 * the pod belongs to a StatefulSet.
 */
function templateKey({ object, podClaimName }: AllocatedClaim, { request }: StoredDevice): StableKey | undefined {
  const pod = controllerOf(object.metadata?.ownerReferences, 'v1', 'Pod');
  return pod && { key: `${pod.name}/${podClaimName}/${baseRequest(request)}`, name: pod.name };
}

/**
 * Returns the key of a StatefulSet's pod. The controllers choose the names of pod and claim, so the next pod of this name has
 * the same key.
 * @throws DriverError `config-invalid` for all other pods; KubeError
 */
async function statefulPodOf(
  claim: AllocatedClaim,
  device: StoredDevice,
  pods: PoolAddressesOptions['pods'],
  signal: AbortSignal,
): Promise<StableKey> {
  const { request } = device;
  const { identity, object, podClaimName, podUids } = claim;
  const refuse = (problem: string) => keyRefusal(claim, request, problem);
  const podOwner = controllerOf(object.metadata?.ownerReferences, 'v1', 'Pod');
  const stable = templateKey(claim, device);
  const isOfTemplate = poolLabel.safeParse(podClaimName).success;
  if (podOwner === undefined || stable === undefined || !isOfTemplate || !podUids.includes(podOwner.uid)) {
    throw refuse(notFromTemplate);
  }
  const pod = await pods.readPod(identity.namespace, podOwner.name, signal);
  if (pod.metadata?.uid !== podOwner.uid) throw refuse(`pod ${podOwner.name} got replaced`);
  const owner = controllerOf(pod.metadata.ownerReferences, 'apps/v1', 'StatefulSet');
  if (owner === undefined || !isPodOf(owner.name, podOwner.name)) {
    throw refuse(`pod ${podOwner.name} is not of a StatefulSet`);
  }
  if (!poolLabel.safeParse(podOwner.name).success) {
    throw refuse(`the name of pod ${podOwner.name} has a dot, or more than 63 characters`);
  }
  const { apiVersion, kind, name, uid } = owner;
  return { ...stable, owner: { apiVersion, kind, name, uid } };
}

function isPodOf(statefulSet: string, pod: string): boolean {
  return pod.startsWith(`${statefulSet}-`) && /^\d+$/.test(pod.slice(statefulSet.length + 1));
}

function controllerOf(
  owners: readonly OwnerReference[] | undefined,
  apiVersion: string,
  kind: string,
): OwnerReference | undefined {
  return owners?.find((each) => each.controller === true && each.apiVersion === apiVersion && each.kind === kind);
}
