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

/** Lookup of the node's VFs by their names in the ResourceSlice. */
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
  /** Closed fields that the operator opens to claims of all classes. */
  openClaimFields: readonly ClosedField[];
  cni: CniRules;
  /**
   * Returns the networks of the node itself. Claims may not add routes to them, neither by `routes` nor by the networks of
   * their addresses.
   */
  nodeNetworks: () => Promise<Cidr[]>;
  store: StoredClaims;
}

/** A device that a claim with `adminAccess` may observe, even while another claim has the device. */
export interface ObservedDevice extends DeviceName {
  pciAddress: string;
  /** Full reference of the request, with the subrequest if there is one. */
  request: string;
}

/** Resolves the VFs that are allocated to a claim, and the configuration of each. Changes nothing. */
export class DeviceResolver {
  readonly #options: DeviceResolverOptions;

  constructor(options: DeviceResolverOptions) {
    this.#options = options;
  }

  /**
   * Returns this driver's devices in a claim's allocation, in its order, with the configuration of each. Skips devices of
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
   * Returns the devices that the claim may only observe (`adminAccess`). The claim's configuration does not apply to them.
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
   * Checks that all devices are of this node's pool. Other nodes have devices with the same names, which must not be confused
   * with this node's.
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
   * Checks the names, routes and VRFs of a pod's interfaces against each other, before any of them is in the pod. See {@link
   * checkPodInterfaces}.
   * @param passing claims of the same call that move on to another pod; the store still has their earlier pods
   * @throws DriverError `config-invalid`
   */
  checkInterfaces(claim: AllocatedClaim, devices: readonly StoredDevice[], passing: readonly ClaimDevices[]): void {
    checkPodInterfaces(claim, devices, this.#otherClaims(claim, passing));
  }

  /** Returns the other claims of the pods that the claim is for. */
  #otherClaims({ identity, podUids }: AllocatedClaim, passing: readonly ClaimDevices[]): ClaimDevices[] {
    const stored = podUids.flatMap((podUid) => this.#options.store.claimsOfPod(podUid));
    const others = [...stored, ...passing.filter((other) => other.podUids.some((uid) => podUids.includes(uid)))];
    return others.filter((other) => other.identity.uid !== identity.uid);
  }
}

/**
 * Checks rules that apply only to VFs. They cannot have `keepHostConfig`: on VFs that the node offers, the host has no
 * addresses or routes. Ethernet VFs need a VLAN if the class has `limits.vlanRanges`; other devices have no VLAN.
 * @throws DriverError `config-invalid`
 */
export function checkKinds(claim: AllocatedClaim, devices: readonly StoredDevice[]): void {
  const vfs = devices.filter(({ offered }) => offered.kind !== 'nic');
  const problems = vfs.flatMap(({ driver, config, name, request, offered }) => [
    ...(config.keepHostConfig === true
      ? [`keepHostConfig: is for whole NICs, and device ${name} of request ${request} is a VF`]
      : []),
    ...((offered.linkType ?? 'ethernet') === 'ethernet'
      ? findMissingVlan(config, classConfigsOf(driver, claim, request))
      : []),
  ]);
  if (problems.length > 0) throw invalidConfig(claim, [...new Set(problems)]);
}

/**
 * Returns the configuration with the device plugin's variables for an extended resource, unless class or claim set
 * `dialects`: images that request an extended resource were made for the device plugin.
 */
function withVariables(config: VfConfig, resourceName: string): VfConfig {
  return { dialects: { devicePlugin: { resourceName } }, ...config };
}

/**
 * Returns the node's networks if the claim has `routes` or `addresses`, which add routes; otherwise an empty list, without
 * reading anything.
 */
async function networksFor({ object }: AllocatedClaim, read: () => Promise<Cidr[]>): Promise<Cidr[]> {
  const config = object.status?.allocation?.devices?.config ?? [];
  const addsRoutes = config.some(({ opaque }) =>
    ['routes', 'addresses'].some((field) => Object.hasOwn(Object(opaque?.parameters), field)),
  );
  return addsRoutes ? await read() : [];
}
