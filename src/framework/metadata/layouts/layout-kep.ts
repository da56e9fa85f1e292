import { encodeObject } from '../document/codec.ts';
import { claimNames, type Layout } from './layout.ts';
import { metadataFileSuffix, requestFile } from './layout-v1.ts';

export const kepContainerDir = '/var/run/dra-device-attributes';

/**
 * Layout that the text of KEP-5304 describes: one v1alpha1 object. `networkData` has the field names of the KEP's Go type,
 * since consumers decode strictly. The KEP's shell examples read older names, `addresses` and `hwAddress`, which only the
 * layout `downward-api` has.
 */
export const kep: Layout = {
  name: 'kep',
  hostFile: (dirs, place) => requestFile(dirs, place, 'metadata-kep.json'),
  containerPaths: (place) =>
    claimNames(place).map((name) => `${kepContainerDir}/${name}/${place.request}/${place.driver}${metadataFileSuffix}`),
  encode: ({ document }) => document && encodeObject(document, 'v1alpha1'),
};
