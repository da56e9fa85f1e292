import { deepFreeze } from '../../lib/freeze.ts';
import type { NetworkDevice } from './device.ts';

/** Value of an attribute, in the JSON form of resource.k8s.io/v1. */
export type InventoryAttribute = { string: string } | { int: number } | { bool: boolean };

/** Maximum length of an attribute's text, in bytes: `DeviceAttributeMaxValueLength` of the API server. */
export const maxAttributeBytes = 64;

type Value = string | number | boolean;

/**
 * Cached attributes by device. Devices do not change once they are found, and each report and update needs their attributes.
 */
const known = new WeakMap<NetworkDevice, Readonly<Record<string, InventoryAttribute>>>();

/**
 * Returns the attributes that claims can select by, frozen. Unqualified names belong to the driver's domain and are always
 * present, with an empty string, 0 or -1 for unknown values: if one device lacked an attribute that a CEL selector reads, the
 * whole claim would fail. Well-known names are omitted when unknown: they serve to compare devices, and two unknown values
 * would count as equal.
 */
export function deviceAttributes(device: NetworkDevice): Readonly<Record<string, InventoryAttribute>> {
  const attributes = known.get(device) ?? deepFreeze(attributesOf(device));
  known.set(device, attributes);
  return attributes;
}

function attributesOf(device: NetworkDevice): Record<string, InventoryAttribute> {
  const { hardwareAddress = '', mtuBytes = 0, linkType = '', linkSpeedMbps = 0 } = device;
  const wellKnown: Record<string, Value | undefined> = {
    'resource.kubernetes.io/pciBusID': device.pciAddress,
    'resource.kubernetes.io/pcieRoot': device.pcieRoot,
    'resource.kubernetes.io/numaNode': device.numaNode,
    'k8s.cni.cncf.io/deviceID': device.pciAddress,
    'k8s.cni.cncf.io/resourceName': device.resourceName,
  };
  const own: Record<string, Value> = {
    kind: device.kind,
    pciAddress: device.pciAddress,
    ...physicalFunction(device),
    vendor: device.vendor,
    device: device.device,
    driver: device.driver ?? '',
    iommuGroup: device.iommuGroup ?? '',
    iommuGroupShared: device.iommuPeers.length > 0,
    mac: hardwareAddress,
    mtu: mtuBytes,
    linkType,
    linkSpeed: linkSpeedMbps,
    rdma: device.rdmaDevices.length > 0,
    rdmaDevice: device.rdmaDevices.join(','),
    rdmaNetnsMode: device.rdmaNetnsMode ?? '',
    simulated: device.simulated,
  };
  const attributes: Record<string, InventoryAttribute> = {};
  for (const [name, value] of Object.entries(wellKnown)) if (isKnown(value)) attributes[name] = toAttribute(value);
  for (const [name, value] of Object.entries(own)) attributes[name] = toAttribute(value);
  return attributes;
}

/**
 * Returns attributes of the PF. A NIC that is offered as a whole is its own PF, so that claims can select VFs and NICs by
 * card, or require different cards.
 */
function physicalFunction(device: NetworkDevice): Record<string, Value> {
  if (device.kind === 'nic') {
    return { pfPciAddress: device.pciAddress, pfName: device.interfaceName ?? '', vfIndex: -1, eswitchMode: '' };
  }
  const { pfAddress, pfName = '', vfIndex, eswitchMode = '' } = device;
  return { pfPciAddress: pfAddress, pfName, vfIndex, eswitchMode };
}

function isKnown(value: Value | undefined): value is Value {
  return value !== undefined && value !== '' && !isTooLong(value);
}

/**
 * Converts a value. A text that is too long becomes empty: it would invalidate the whole slice, and a truncated text would be
 * wrong.
 */
function toAttribute(value: Value): InventoryAttribute {
  if (typeof value === 'number') return { int: value };
  if (typeof value === 'boolean') return { bool: value };
  return { string: isTooLong(value) ? '' : value };
}

function isTooLong(value: Value): boolean {
  // A UTF-16 unit has at most three bytes in UTF-8, so most texts need not be measured.
  return (
    typeof value === 'string' && value.length > maxAttributeBytes / 3 && Buffer.byteLength(value) > maxAttributeBytes
  );
}
