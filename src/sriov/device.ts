import type { VfIdentity } from '../netlink/index.ts';
import { formatDeviceName, formatSimulatedAlias } from './pci-address.ts';
import type { Vf } from './sysfs.ts';

/** A VF as it is offered: what sysfs tells, and what netlink tells about its interface. */
export interface VfDevice extends Vf {
  /** In its pool, e.g. `0000-3b-02-1`. */
  name: string;
  simulated: boolean;
}

/** One value, in the form that resource.k8s.io/v1 has in JSON. */
export type DeviceAttribute = { string: string } | { int: number } | { bool: boolean };

/** `DeviceAttributeMaxValueLength` and `ResourceSliceMaxAttributesAndCapacitiesPerDevice`. */
export const maxAttributeBytes = 64;
export const maxAttributes = 32;

export function createVfDevice(vf: Vf, simulated: boolean): VfDevice {
  return { ...vf, name: formatDeviceName(vf.pciAddress), simulated };
}

/** How to find the VF's link, in whatever namespace it is. */
export function linkIdentity({ pciAddress, simulated }: Pick<VfDevice, 'pciAddress' | 'simulated'>): VfIdentity {
  return simulated ? { alias: formatSimulatedAlias(pciAddress) } : { pciAddress };
}

/**
 * The attributes that a claim can select by. What is not known is absent: an empty string or -1 would make unknown
 * values equal to each other for `matchAttribute`. Always there are the addresses, ids, `vfIndex` and `simulated`.
 * Unqualified names belong to the driver's domain.
 */
export function deviceAttributes(vf: VfDevice): Record<string, DeviceAttribute> {
  const values: Record<string, string | number | boolean | undefined> = {
    'resource.kubernetes.io/pciBusID': vf.pciAddress,
    'resource.kubernetes.io/pcieRoot': vf.pcieRoot,
    'resource.kubernetes.io/numaNode': vf.numaNode,
    pciAddress: vf.pciAddress,
    pfPciAddress: vf.pfAddress,
    pfName: vf.pfName,
    vfIndex: vf.vfIndex,
    vendor: vf.vendor,
    device: vf.device,
    driver: vf.driver,
    iommuGroup: vf.iommuGroup,
    mac: vf.hardwareAddress,
    mtu: vf.mtuBytes,
    simulated: vf.simulated,
  };
  return Object.fromEntries(
    Object.entries(values).flatMap(([name, value]) => {
      const attribute = toAttribute(value);
      return attribute === undefined ? [] : [[name, attribute]];
    }),
  );
}

/** `undefined` for what the API would refuse: one value too long would cost the whole slice. */
function toAttribute(value: string | number | boolean | undefined): DeviceAttribute | undefined {
  if (typeof value === 'number') return { int: value };
  if (typeof value === 'boolean') return { bool: value };
  if (value === undefined || value === '' || Buffer.byteLength(value) > maxAttributeBytes) return undefined;
  return { string: value };
}
