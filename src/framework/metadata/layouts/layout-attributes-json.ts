import { formatAttributeStrings } from '../document/attribute.ts';
import { formatGoJson } from '../document/json-stream.ts';
import { defaultHostDirs, type Layout, type RequestPlace } from './layout.ts';
import { fileName, pathPart } from './paths.ts';

/**
 * Layout of KEP-5304 as of October 2025: the attributes of the devices in the ResourceSlice, as text, written at prepare and
 * not changed by updates. A request with several devices has several entries with the same name, since the KEP requires the
 * attributes of all devices and an entry has only one map.
 */
export const attributesJson: Layout = {
  name: 'attributes-json',
  hostFile: ({ attributesDir }, place) => ({ base: attributesDir, parts: [attributesFileName(place)] }),
  containerPaths: (place) => [`${defaultHostDirs.attributesDir}/${attributesFileName(place)}`],
  encode({ claim, request, published }) {
    const requests = published.map(({ attributes }) => ({
      requestName: request,
      attributes: formatAttributeStrings(attributes),
    }));
    return `${formatGoJson({ claims: [{ claimName: claim.name, requests }] })}\n`;
  },
};

function attributesFileName({ claim, request, driver }: RequestPlace): string {
  const prefix = attributesFilePrefix(driver, claim.uid);
  return fileName(`${prefix}${pathPart(request, 'request')}.json`, `claim ${claim.namespace}/${claim.name}`);
}

export function attributesFilePrefix(driver: string, claimUid: string): string {
  return `${pathPart(driver, 'driver name')}-${pathPart(claimUid, 'claim UID')}-`;
}
