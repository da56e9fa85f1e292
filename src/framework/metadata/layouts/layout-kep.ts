import { defined } from '../../../lib/defined.ts';
import { encodeObject, formatNetworkData } from '../document/codec.ts';
import type { NetworkDeviceData } from '../document/document.ts';
import { claimNames, type Layout } from './layout.ts';
import { metadataFileSuffix, requestFile } from './layout-v1.ts';

export const kepContainerDir = '/var/run/dra-device-attributes';

/**
 * The text of KEP-5304: one v1alpha1 object. Its type has the API's field names, its examples read `addresses` and
 * `hwAddress`; both are written.
 */
export const kep: Layout = {
  name: 'kep',
  hostFile: (dirs, place) => requestFile(dirs, place, 'metadata-kep.json'),
  containerPaths: (place) =>
    claimNames(place).map((name) => `${kepContainerDir}/${name}/${place.request}/${place.driver}${metadataFileSuffix}`),
  encode: ({ document }) => document && encodeObject(document, 'v1alpha1', formatKepNetworkData),
};

function formatKepNetworkData(data: NetworkDeviceData): Record<string, unknown> {
  const { ips, hardwareAddress, ...rest } = formatNetworkData(data);
  return { ...rest, ...defined({ ips, hardwareAddress, addresses: ips, hwAddress: hardwareAddress }) };
}
