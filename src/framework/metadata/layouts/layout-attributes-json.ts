import { formatAttributeStrings } from '../document/attribute.ts';
import { formatGoJson } from '../document/json-stream.ts';
import { listDir } from '../files/host-file.ts';
import { defaultHostDirs, type Layout, type RequestPlace } from './layout.ts';
import { fileName, pathPart } from './paths.ts';

/**
 * KEP-5304 as of October 2025: the attributes of the devices in the ResourceSlice, as text, written at prepare and not
 * changed by updates. A request with several devices has an entry for each, under the same name: the text requires the
 * attributes of all devices, and has one map for each entry.
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
  listFiles({ attributesDir }, driver) {
    const prefix = `${driver}-`;
    return listDir(attributesDir).flatMap((name) => {
      const [, claimUid] = (name.startsWith(prefix) && uidAndRequest.exec(name.slice(prefix.length))) || [];
      return claimUid === undefined ? [] : [{ file: { base: attributesDir, parts: [name] }, claimUid }];
    });
  },
};

/** UIDs of claims are UUIDs: the name of another driver can begin with this driver's. */
const uidAndRequest = /^([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-[^/]+\.json$/;

function attributesFileName({ claim, request, driver }: RequestPlace): string {
  const prefix = attributesFilePrefix(driver, claim.uid);
  return fileName(`${prefix}${pathPart(request, 'request')}.json`, `claim ${claim.namespace}/${claim.name}`);
}

export function attributesFilePrefix(driver: string, claimUid: string): string {
  return `${pathPart(driver, 'driver name')}-${pathPart(claimUid, 'claim UID')}-`;
}
