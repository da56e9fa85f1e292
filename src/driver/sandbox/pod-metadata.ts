import {
  attributeLimits,
  baseRequest,
  type ClaimIdentity,
  type DeviceAttributes,
  type DeviceMetadata,
  findDevice,
  type MetadataDocument,
  type NetworkDeviceData,
} from '../../framework/metadata/index.ts';
import { defined } from '../../lib/defined.ts';
import type { VfAccess } from '../../node/sriov/index.ts';
import type { StoredDevice, VfConfig } from '../model/index.ts';
import type { MemberState, VfState } from '../vf/index.ts';
import type { NumaResult } from './numa-placement.ts';

export interface MetadataReader {
  /** Returns the last written metadata of a request: see `ClaimMetadata`. */
  read(claim: ClaimIdentity, request: string): MetadataDocument | undefined;
}

/** Returns the last written metadata of a VF; `undefined` if there is none. @throws MetadataError, StateError */
export function metadataOf(
  metadata: MetadataReader,
  claim: ClaimIdentity,
  device: StoredDevice,
): DeviceMetadata | undefined {
  return findDevice(metadata.read(claim, device.request)?.devices, device);
}

/**
 * Attributes that only serve to select devices, or repeat `resource.kubernetes.io/pciBusID`. If a device has more attributes
 * than the API allows, these are left out, in this order.
 */
const redundantAttributes = ['rdmaNetnsMode', 'pciAddress', 'k8s.cni.cncf.io/deviceID'];

function fitting(attributes: DeviceAttributes): DeviceAttributes {
  const excess = Math.max(0, Object.keys(attributes).length - attributeLimits.attributes);
  const omitted = redundantAttributes.slice(0, excess);
  return Object.fromEntries(Object.entries(attributes).filter(([name]) => !omitted.includes(name)));
}

/** Converts network data to the API's format. Leaves out unknown values. */
function toNetworkData({ interfaceName, ips, hardwareAddress }: VfState): NetworkDeviceData {
  return defined({ interfaceName, ips: ips.length === 0 ? undefined : ips, hardwareAddress });
}

/** Returns the metadata of a device: its published attributes, the attributes that its claim changed, and its network data. */
export function toDeviceMetadata(
  device: StoredDevice,
  attributes: DeviceAttributes,
  state: VfState,
  alignment?: NumaResult,
): DeviceMetadata {
  const { driver, pool, name, shareId, access, config } = device;
  return {
    driver,
    pool,
    name,
    ...defined({ shareId }),
    attributes: fitting({
      ...attributes,
      ...(access === undefined ? {} : toAccessAttributes(access)),
      ...toRateAttributes(config),
      ...toAttributes(state),
      ...(isShared(state) && { addressConflict: { bool: true } }),
      ...(state.member === undefined ? {} : toMemberAttributes(config, state.member)),
      ...(alignment !== undefined && alignment !== 'unknown' && { numaAligned: { bool: alignment === 'aligned' } }),
    }),
    networkData: toNetworkData(state),
  };
}

/** Returns the alignment in the metadata. After a restart of the driver, nothing else is known about it. */
export function alignmentIn(metadata: DeviceMetadata | undefined): NumaResult | undefined {
  const { bool } = metadata?.attributes?.numaAligned ?? {};
  return bool === undefined ? undefined : bool ? 'aligned' : 'misaligned';
}

function toAttributes({ mtuBytes, linkUp, hardwareAddress, vlan, rdmaDevice }: VfState): DeviceAttributes {
  return {
    ...(mtuBytes !== undefined && { mtu: { int: mtuBytes } }),
    ...(linkUp !== undefined && { linkUp: { bool: linkUp } }),
    ...(hardwareAddress !== undefined && { mac: { string: hardwareAddress } }),
    ...(vlan !== undefined && { vlan: { int: vlan } }),
    ...(rdmaDevice !== undefined && { rdmaDevice: { string: rdmaDevice } }),
  };
}

/** Returns whether another host of the network has an address of the VF. */
function isShared({ duplicates = [], conflicts }: VfState): boolean {
  return duplicates.length > 0 || (conflicts?.size ?? 0) > 0;
}

function toRateAttributes({ vf: { minTxRate = 0, maxTxRate = 0 } = {} }: VfConfig): DeviceAttributes {
  return {
    ...(minTxRate !== 0 && { minTxRate: { int: minTxRate } }),
    ...(maxTxRate !== 0 && { maxTxRate: { int: maxTxRate } }),
  };
}

/** Returns the attributes of a VF in a bond: they describe the VF, whereas the network data describe the bond. */
function toMemberAttributes({ bond }: VfConfig, { interfaceName, isActive, ...own }: MemberState): DeviceAttributes {
  const { name = '', mode = 'active-backup' } = bond ?? {};
  return {
    ...toAttributes({ ...own, ips: [], tentative: false }),
    bond: { string: name },
    bondMode: { string: mode },
    bondMember: { string: interfaceName },
    bondActive: { bool: isActive },
  };
}

/**
 * Returns attributes that the claim may have changed, such as the driver. The inventory describes the VF as it was before its
 * claim.
 */
function toAccessAttributes({ driver, vfio, rdmaDevice }: VfAccess): DeviceAttributes {
  return {
    ...(driver !== undefined && { driver: { string: driver } }),
    ...(rdmaDevice !== undefined && { rdma: { bool: true }, rdmaDevice: { string: rdmaDevice } }),
    ...(vfio !== undefined && {
      iommuGroup: { string: vfio.iommuGroup },
      vfioDevice: { string: vfio.device },
      rdma: { bool: false },
      rdmaDevice: { string: '' },
      rdmaNetnsMode: { string: '' },
    }),
  };
}

/** Groups items by base name of their request; each request has one file. */
export function byRequest<T extends { request: string }>(items: T[]): Map<string, T[]> {
  return Map.groupBy(items, ({ request }) => baseRequest(request));
}
