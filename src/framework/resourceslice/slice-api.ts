import { isKubeError, type KubeRequests, type ObjectMeta, type ResourceApi, type WatchEvent } from '../kube/index.ts';
import { SliceError } from './errors.ts';
import type { ResourceSlice } from './model.ts';

/** Calls of the API server for publishing the slices of one driver on one node. */
export interface SliceApi {
  /** Returns the UID of the Node. @throws SliceError `slice-node-unknown` */
  nodeUid(signal: AbortSignal): Promise<string>;
  list(signal: AbortSignal): Promise<{ slices: ResourceSlice[]; resourceVersion: string }>;
  /** Yields changes of the slices after a version of the list. */
  watch(resourceVersion: string, signal: AbortSignal): AsyncIterable<WatchEvent<ResourceSlice>>;
  /** Creates a slice. @returns the slice as stored by the API server */
  create(slice: ResourceSlice, signal: AbortSignal): Promise<ResourceSlice>;
  /** Replaces the slice only if it is still at its `resourceVersion`. */
  replace(slice: ResourceSlice, signal: AbortSignal): Promise<ResourceSlice>;
  /** Deletes the slice only if it is unchanged; a missing slice is no error. */
  delete(slice: ResourceSlice, signal: AbortSignal): Promise<void>;
}

export function createSliceApi(
  client: KubeRequests,
  resources: ResourceApi,
  { driver, nodeName }: { driver: string; nodeName: string },
): SliceApi {
  const query = { fieldSelector: `spec.driver=${driver},spec.nodeName=${nodeName}` };
  const path = 'resourceslices';
  return {
    nodeUid: (signal) => readNodeUid(client, nodeName, signal),
    async list(signal) {
      const { metadata, items } = await resources.list<ResourceSlice>({ path, query, signal });
      return { slices: items, resourceVersion: metadata.resourceVersion ?? '' };
    },
    watch: (resourceVersion, signal) => resources.watch({ path, query: { ...query, resourceVersion }, signal }),
    create: (slice, signal) => resources.request({ method: 'POST', path, body: withKind(slice), signal }),
    replace: (slice, signal) =>
      resources.request({ method: 'PUT', path: `${path}/${slice.metadata.name}`, body: withKind(slice), signal }),
    async delete({ metadata: { name, uid, resourceVersion } }, signal) {
      const body = { apiVersion: 'v1', kind: 'DeleteOptions', preconditions: { uid, resourceVersion } };
      try {
        await resources.request({ method: 'DELETE', path: `${path}/${name}`, body, signal });
      } catch (error) {
        if (!isKubeError(error, 'api-not-found')) throw error;
      }
    },
  };
}

function withKind(slice: ResourceSlice) {
  const { apiVersion: _, ...rest } = slice;
  return { ...rest, kind: 'ResourceSlice' };
}

async function readNodeUid(client: KubeRequests, nodeName: string, signal: AbortSignal): Promise<string> {
  let node: { metadata?: ObjectMeta };
  try {
    node = await client.request({ method: 'GET', path: `/api/v1/nodes/${nodeName}`, signal });
  } catch (cause) {
    if (!isKubeError(cause, 'api-not-found')) throw cause;
    throw new SliceError('slice-node-unknown', `there is no node ${nodeName} to publish slices for`, {
      cause,
      hint: 'the node name must be that of the Node object of this machine',
    });
  }
  const uid = node.metadata?.uid;
  if (uid === undefined) throw new SliceError('slice-node-unknown', `node ${nodeName} has no UID`);
  return uid;
}
