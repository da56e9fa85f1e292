import { setImmediate } from 'node:timers/promises';
import type { AllocatedClaim } from '../../framework/kubeletplugin/index.ts';
import { baseRequest, claimName, type DeviceName } from '../../framework/metadata/index.ts';
import { defined } from '../../lib/defined.ts';
import type { NetworkDevice } from '../../node/inventory/index.ts';
import type { Cidr } from '../../node/netlink/index.ts';
import type { VfAddress } from '../../node/sriov/index.ts';
import { checkBonds } from '../api/bond-rules.ts';
import { type ClaimRules, checkDeviceCount, findMissingVlan } from '../api/class-rules.ts';
import { type CniRules, checkCniPlugins, checkCniUse } from '../api/cni-rules.ts';
import {
  classConfigsOf,
  cniPluginTypes,
  configForDevice,
  entriesPerTurn,
  parseEntries,
  resolveVfConfig,
} from '../api/config.ts';
import { checkNamespace, type NamespaceReader } from '../api/namespace-rules.ts';
import {
  type ClaimDevices,
  type ClosedField,
  invalidConfig,
  refusal,
  type StoredDevice,
  type VfConfig,
} from '../model/index.ts';
import type { StoredClaims } from '../state/index.ts';
import { withGuarantee } from './guarantees.ts';
import { type NetworkAttachmentReader, resolveNetworkAttachment } from './network-attachments.ts';
import { checkPodInterfaces } from './pod-interfaces.ts';

/** Finds the node's VFs by their names in the ResourceSlice. */
export interface DeviceFinder {
  /** Name of the node's only pool. */
  pool: string;
  find(device: string): NetworkDevice | undefined;
}

export interface DeviceResolverOptions {
  driver: string;
  inventory: DeviceFinder;
  networkAttachments: NetworkAttachmentReader;
  namespaces: NamespaceReader;
  /** Closed fields that claims of all classes may set. */
  openClaimFields: readonly ClosedField[];
  cni: CniRules;
  /** Returns the networks of the node itself, to which claims may have neither routes nor addresses whose networks reach them. */
  nodeNetworks: () => Promise<Cidr[]>;
  store: StoredClaims;
}

/** A device that a claim may observe, also while another claim has it. */
export interface ObservedDevice extends DeviceName {
  pciAddress: string;
  /** Full reference of the request. */
  request: string;
}

/** Resolves the VFs that are allocated to a claim, and the configuration of each. Changes nothing. */
export class DeviceResolver {
  readonly #options: DeviceResolverOptions;

  constructor(options: DeviceResolverOptions) {
    this.#options = options;
  }

  /**
   * @returns the devices of the allocation that are this driver's and the claim's own, in its order: without those of
   * requests with `adminAccess`, which other claims may hold.
   * @throws DriverError `pool-foreign`, `device-unknown`, `config-invalid`, `network-attachment-unusable`; CniError
   * `cni-config-invalid`
   */
  async resolve(
    claim: AllocatedClaim,
    signal: AbortSignal,
    nodeNetworks = this.#options.nodeNetworks,
  ): Promise<StoredDevice[]> {
    this.#checkPools(claim);
    const results = this.#resultsOf(claim).filter(({ adminAccess }) => adminAccess !== true);
    const rules = { open: this.#options.openClaimFields, nodeNetworks: await networksFor(claim, nodeNetworks) };
    const configs = await this.#configs(claim, new Set(results.map(({ request }) => request)), rules, signal);
    const devices = results.map((result): StoredDevice => {
      const { driver, pool, device: name, shareID: shareId, request } = result;
      const offered = this.#find(claim, name);
      const { pciAddress, pfAddress, vfIndex }: VfAddress = offered;
      const siblings = results.filter((each) => each.request === request);
      const index = siblings.indexOf(result);
      const asked = configForDevice(configs.get(request) ?? {}, claimName(claim.identity), index, siblings.length);
      const config = withGuarantee(claim, offered, asked);
      const [extendedResource] = claim.extendedResources?.get(baseRequest(request)) ?? [];
      const sharers = claim.sharers?.get(baseRequest(request));
      return {
        driver,
        pool,
        name,
        pciAddress,
        request,
        offered,
        ...defined({ shareId, pfAddress, vfIndex, extendedResource, sharers }),
        ...(config.attach !== undefined && { isAttachOfClaim: this.#choosesAttach(claim, request, config) }),
        config: extendedResource === undefined ? config : withVariables(config, extendedResource),
      };
    });
    checkBonds(claim, devices);
    checkKinds(claim, devices);
    return devices;
  }

  /**
   * Returns the devices that the claim may only observe (`adminAccess`). Its config is not applied to them.
   * @throws DriverError `device-unknown`
   */
  observed(claim: AllocatedClaim): ObservedDevice[] {
    const results = this.#resultsOf(claim).filter(({ adminAccess }) => adminAccess === true);
    return results.map(({ pool, device: name, shareID: shareId, request }) => {
      return { pool, name, request, pciAddress: this.#find(claim, name).pciAddress, ...defined({ shareId }) };
    });
  }

  #choosesAttach(claim: AllocatedClaim, request: string, { attach }: VfConfig): boolean {
    const ofClass = classConfigsOf(this.#options.driver, claim, request).findLast((each) => each.attach !== undefined);
    return attach !== ofClass?.attach;
  }

  #resultsOf({ results }: AllocatedClaim) {
    return results.filter(({ driver }) => driver === this.#options.driver);
  }

  async #configs(claim: AllocatedClaim, requests: Set<string>, rules: ClaimRules, signal: AbortSignal) {
    const { driver, networkAttachments, namespaces, cni } = this.#options;
    const configs = new Map<string, VfConfig>();
    await parseEntries(driver, claim);
    for (const request of requests) {
      if (configs.size > 0 && configs.size % entriesPerTurn === 0) await setImmediate();
      const ofClass = classConfigsOf(driver, claim, request);
      await checkNamespace(claim, ofClass, namespaces, signal);
      checkDeviceCount(claim, request, ofClass);
      const config = resolveVfConfig(driver, claim, request, rules);
      checkCniUse(claim, config, cni);
      const complete = await resolveNetworkAttachment(config, claim, networkAttachments, signal);
      checkCniPlugins(claim, cniPluginTypes(claim, complete), cni);
      configs.set(request, complete);
    }
    return configs;
  }

  /**
   * Checks the pools: device names repeat on every node, so that another node's device must not be taken for one of this
   * node.
   * @throws DriverError `pool-foreign`
   */
  #checkPools(claim: AllocatedClaim): void {
    const { pool: own } = this.#options.inventory;
    for (const { pool, device, request } of this.#resultsOf(claim)) {
      if (pool === own) continue;
      const problem = `: request ${request} is allocated device ${device} of pool ${pool}, but the pool of this node is ${own}`;
      const hint = `find the ResourceSlice with spec.pool.name ${pool} whose spec.nodeName is not ${pool}, find out which account has written it, and delete it; then delete the pod`;
      throw refusal(claim, 'pool-foreign', problem, { device, hint });
    }
  }

  #find(claim: AllocatedClaim, name: string): NetworkDevice {
    const { inventory } = this.#options;
    const vf = inventory.find(name);
    if (vf !== undefined) return vf;
    const hint = 'the VF vanished after it was allocated; delete the pod so that it is scheduled anew';
    const problem = `: this node has no device ${inventory.pool}/${name}`;
    throw refusal(claim, 'device-unknown', problem, { device: name, hint });
  }

  /**
   * Checks the interfaces of a pod against each other, before one of them is in the pod. {@link checkPodInterfaces}
   * @param passing claims of the same call that pass to another pod: the store has them for their earlier pods
   * @throws DriverError `config-invalid`
   */
  checkInterfaces(claim: AllocatedClaim, devices: readonly StoredDevice[], passing: readonly ClaimDevices[]): void {
    checkPodInterfaces(claim, devices, this.#otherClaims(claim, passing));
  }

  /** Returns the other claims of the claim's pods. */
  #otherClaims({ identity, podUids }: AllocatedClaim, passing: readonly ClaimDevices[]): ClaimDevices[] {
    const stored = podUids.flatMap((podUid) => this.#options.store.claimsOfPod(podUid));
    const others = [...stored, ...passing.filter((other) => other.podUids.some((uid) => podUids.includes(uid)))];
    return others.filter((other) => other.identity.uid !== identity.uid);
  }
}

/**
 * Checks what depends on the kind of the devices. The host has no addresses and routes on the VFs that it offers, and whole
 * NICs have no VLAN that `limits.vlanRanges` could require.
 * @throws DriverError `config-invalid`
 */
export function checkKinds(claim: AllocatedClaim, devices: readonly StoredDevice[]): void {
  const vfs = devices.filter(({ offered }) => offered.kind !== 'nic');
  const problems = vfs.flatMap(({ driver, config, name, request }) => [
    ...(config.keepHostConfig === true
      ? [`keepHostConfig: is for whole NICs, and device ${name} of request ${request} is a VF`]
      : []),
    ...findMissingVlan(config, classConfigsOf(driver, claim, request)),
  ]);
  if (problems.length > 0) throw invalidConfig(claim, [...new Set(problems)]);
}

/**
 * Adds the device plugin's variables for an extended resource: images that request one were made for the device plugin,
 * unless the class says otherwise.
 */
function withVariables(config: VfConfig, resourceName: string): VfConfig {
  return { dialects: { devicePlugin: { resourceName } }, ...config };
}

/** Reads the node's networks only for claims that add routes, by themselves or by the networks of addresses. */
async function networksFor({ object }: AllocatedClaim, read: () => Promise<Cidr[]>): Promise<Cidr[]> {
  const config = object.status?.allocation?.devices?.config ?? [];
  const addsRoutes = config.some(({ opaque }) =>
    ['routes', 'addresses'].some((field) => Object.hasOwn(Object(opaque?.parameters), field)),
  );
  return addsRoutes ? await read() : [];
}
