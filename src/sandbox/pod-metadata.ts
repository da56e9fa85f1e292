import type { StoredDevice } from '../driver/index.ts';
import type { DeviceAttributes, DeviceMetadata, NetworkDeviceData } from '../metadata/index.ts';
import { baseRequest } from '../metadata/index.ts';
import type { NetworkState } from '../netlink/index.ts';

/** The API's network data for what netlink says; what is not there is left out. */
export function toNetworkData(state: NetworkState): NetworkDeviceData {
  const { interfaceName, ips, hardwareAddress } = state;
  return {
    interfaceName,
    ...(ips.length === 0 ? {} : { ips }),
    ...(hardwareAddress === undefined ? {} : { hardwareAddress }),
  };
}

/** What a container is told about a device: its attributes in the inventory, those of its link, and its network data. */
export function toDeviceMetadata(
  driver: string,
  device: StoredDevice,
  attributes: DeviceAttributes,
  state: NetworkState,
): DeviceMetadata {
  return {
    driver,
    pool: device.pool,
    name: device.name,
    // The inventory has what the VF had on the host; the claim may have changed it.
    attributes: {
      ...attributes,
      mtu: { int: state.mtuBytes },
      ...(state.hardwareAddress === undefined ? {} : { mac: { string: state.hardwareAddress } }),
    },
    networkData: toNetworkData(state),
  };
}

/** Groups by base name of the request: one file each. */
export function byRequest<T extends { request: string }>(items: T[]): Map<string, T[]> {
  return Map.groupBy(items, ({ request }) => baseRequest(request));
}
