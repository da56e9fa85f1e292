import { z } from 'zod';
import { defined } from '../../../lib/defined.ts';
import { formatAttributeStrings, mapAttributes, type PlainValue } from '../document/attribute.ts';
import { formatNetworkData } from '../document/codec.ts';
import { findDevice } from '../document/device-key.ts';
import { claimName, type DeviceAttributes, type DeviceMetadata } from '../document/document.ts';
import { formatGoJson } from '../document/json-stream.ts';
import { MetadataError } from '../errors.ts';
import { claimNames, defaultHostDirs, type Layout, type PublishedDevice } from './layout.ts';
import { fileName, pathPart } from './paths.ts';

/**
 * Layout "DRA Attributes Downward API", after an early revision of KEP-5304: one object for each claim and request, written
 * once the driver has reported the devices. `bestEffortData` has the device's attributes in the ResourceSlice, as text;
 * `driverProvidedData` has the data of the driver, in the shape of a device's status. The path does not contain the driver: in
 * this layout a request has one driver.
 */
export const downwardApi: Layout = {
  name: 'downward-api',
  hostFile({ downwardApiDir }, { claim, request, podUid }) {
    const subject = claimName(claim);
    if (podUid === undefined) {
      const hint =
        'the metadata layout downward-api puts files into a directory for each pod; prepare the claim for a pod';
      const message = `claim ${subject} is not reserved for any pod`;
      throw new MetadataError('metadata-name-invalid', message, { claim: subject, hint });
    }
    const file = fileName(`${pathPart(claim.name, 'claim name')}.${pathPart(request, 'request')}.json`, subject);
    return { base: downwardApiDir, parts: [pathPart(podUid, 'pod UID'), file] };
  },
  containerPaths: (place) =>
    claimNames(place).map((name) => `${defaultHostDirs.downwardApiDir}/${name}.${place.request}.json`),
  encode({ claim: { name, namespace, uid }, request, published, document, readySince }) {
    if (document === undefined) return undefined;
    const devices = document.devices.map((device) => formatDevice(device, published, readySince));
    return `${formatGoJson({
      apiVersion: 'dra.k8s.io/v1alpha1',
      kind: 'DeviceMetadata',
      metadata: { name, namespace, uid },
      requests: [{ name: request, devices }],
    })}\n`;
  },
};

/** Returns the claim's UID from a file of this layout; `undefined` unless all of its devices belong to the driver. */
export function claimUidOf(text: string | undefined, driver: string): string | undefined {
  const file = fileSchema.safeParse(parseOrUndefined(text)).data;
  const devices = file?.requests.flatMap((request) => request.devices) ?? [];
  return devices.length > 0 && devices.every((device) => device.driver === driver) ? file?.metadata.uid : undefined;
}

const fileSchema = z.object({
  metadata: z.object({ uid: z.string() }),
  requests: z.array(z.object({ devices: z.array(z.object({ driver: z.string() })) })),
});

function parseOrUndefined(text = ''): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function formatDevice(device: DeviceMetadata, published: readonly PublishedDevice[], readySince: string | undefined) {
  const { name, driver, pool, attributes = {}, networkData } = device;
  const known = findDevice(published, device)?.attributes ?? {};
  return {
    name,
    driver,
    pool,
    bestEffortData: { attributes: formatAttributeStrings(known) },
    driverProvidedData: defined({
      conditions: [{ type: 'Ready', status: 'True', lastTransitionTime: readySince }],
      data: plainData(attributes),
      networkData: networkData && formatOldNetworkData(formatNetworkData(networkData)),
    }),
  };
}

/**
 * Returns values without their kinds, under names without their domains. If two names are then equal, the value of the
 * unqualified name wins.
 */
function plainData(attributes: DeviceAttributes): Record<string, PlainValue> {
  const values = Object.entries(mapAttributes(attributes, (value) => value));
  const isQualified = (name: string) => name.includes('/');
  const data = new Map<string, PlainValue>();
  for (const [name, value] of values.filter(([name]) => isQualified(name))) {
    const id = name.slice(name.indexOf('/') + 1);
    if (!data.has(id)) data.set(id, value);
  }
  for (const [name, value] of values.filter(([name]) => !isQualified(name))) data.set(name, value);
  return Object.fromEntries([...data].sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** Formats network data with the field names from before resource.k8s.io/v1. */
function formatOldNetworkData(data: Record<string, unknown>): Record<string, unknown> {
  return defined({
    interfaceName: data.interfaceName,
    addresses: data.ips,
    hwAddress: data.hardwareAddress,
  });
}
