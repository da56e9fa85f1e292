import { isUserSpace, type StoredDevice } from '../driver/index.ts';
import type { DeviceAttributes, DeviceMetadata, NetworkDeviceData } from '../metadata/index.ts';
import { baseRequest } from '../metadata/index.ts';
import type { VfState } from './place.ts';

/** The API's network data; what is not known is left out. */
export function toNetworkData({ interfaceName, ips, hardwareAddress }: VfState): NetworkDeviceData {
  return {
    ...(interfaceName === undefined ? {} : { interfaceName }),
    ...(ips.length === 0 ? {} : { ips }),
    ...(hardwareAddress === undefined ? {} : { hardwareAddress }),
  };
}

/** What a container is told about a device: what the inventory has, what its claim changed, and its network data. */
export function toDeviceMetadata(
  driver: string,
  device: StoredDevice,
  attributes: DeviceAttributes,
  state: VfState,
): DeviceMetadata {
  const { pool, name, config } = device;
  const { iommuGroup } = attributes;
  return {
    driver,
    pool,
    name,
    attributes: {
      ...attributes,
      ...(state.mtuBytes === undefined ? {} : { mtu: { int: state.mtuBytes } }),
      ...(state.hardwareAddress === undefined ? {} : { mac: { string: state.hardwareAddress } }),
      ...(config.vf?.vlan === undefined ? {} : { vlan: { int: config.vf.vlan } }),
      ...(isUserSpace(config) ? { driver: { string: 'vfio-pci' } } : {}),
      ...(isUserSpace(config) && iommuGroup?.string !== undefined
        ? { vfioDevice: { string: `/dev/vfio/${iommuGroup.string}` } }
        : {}),
    },
    networkData: toNetworkData(state),
  };
}

/** Groups by base name of the request: one file each. */
export function byRequest<T extends { request: string }>(items: T[]): Map<string, T[]> {
  return Map.groupBy(items, ({ request }) => baseRequest(request));
}
