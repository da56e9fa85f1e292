import type { IncomingMessage, ServerResponse } from 'node:http';
import { toServedVersion, toStoredVersion } from './api-server-convert.ts';
import type { LoggedRequest } from './api-server-log.ts';
import type { DeleteOptions, PatchType, Registry } from './api-server-registry.ts';
import { apiVersionOf, type ResourcePath, type ResourceType } from './api-server-resources.ts';
import { parseFieldSelector, parseLabelSelector, type Selector } from './api-server-selectors.ts';
import { ApiStatusError, badRequest, expired } from './api-server-status.ts';
import type { ObjectStore } from './api-server-store.ts';
import type { WriteContext } from './api-server-strategy.ts';
import { isJsonObject, type Json, type JsonObject, type KubeObject, valueAt } from './api-server-types.ts';

/** A request for a resource, resolved. */
export interface ResourceRequest {
  type: ResourceType;
  version: string;
  path: ResourcePath;
  query: URLSearchParams;
  logged: LoggedRequest;
}

/** An answer: its HTTP status and its body. */
export interface Answer {
  status: number;
  body: object;
}

const patchTypes: Record<string, PatchType> = {
  'application/merge-patch+json': 'merge',
  'application/json-patch+json': 'json',
};

/** Answers everything but watches. @throws ApiStatusError for what is refused */
export function serveResource(registry: Registry, store: ObjectStore, request: ResourceRequest): Answer {
  const { type, path, logged } = request;
  if (path.subresource !== undefined && !(path.subresource === 'status' && type.hasStatus)) throw unknownResource();
  if (type.namespaced && path.namespace === undefined && path.name !== undefined) throw unknownResource();
  if (!type.namespaced && path.namespace !== undefined) throw unknownResource();
  const name = path.name ?? '';
  switch (`${logged.method} ${path.name === undefined ? 'collection' : 'object'}`) {
    case 'GET collection':
      return ok(listObjects(store, request));
    case 'GET object':
      return ok(served(request, registry.get(type, path.namespace, name)));
    case 'POST collection': {
      if (type.namespaced && path.namespace === undefined) throw methodNotAllowed();
      const created = registry.create(type, path.namespace, body(request), context(request, 'create'));
      return { status: 201, body: served(request, created) };
    }
    case 'PUT object': {
      const updated = registry.update(type, path.namespace, name, body(request), context(request, 'update'));
      return ok(served(request, updated));
    }
    case 'PATCH object':
      return patchObject(registry, request);
    case 'DELETE object':
      return deleteObject(registry, request);
    case 'DELETE collection':
      return deleteCollection(registry, store, request);
    default:
      throw methodNotAllowed();
  }
}

/** Which objects of the resource a list, a watch or a deletion is about. */
export function selectorOf({ type, path, query }: ResourceRequest): Selector {
  const byField = parseFieldSelector(query.get('fieldSelector'), type);
  const byLabel = parseLabelSelector(query.get('labelSelector'));
  return (object) =>
    (path.name === undefined || object.metadata.name === path.name) && byField(object) && byLabel(object);
}

/** @throws ApiStatusError 413, 400 */
export async function readBody(message: IncomingMessage): Promise<unknown> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of message as AsyncIterable<Buffer>) {
    length += chunk.length;
    if (length > 3 * 1024 * 1024) throw new ApiStatusError(413, 'Request entity too large: limit is 3145728');
    chunks.push(chunk);
  }
  if (length === 0) return undefined;
  const text = Buffer.concat(chunks).toString();
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw badRequest(`the body is not JSON: ${cause instanceof Error ? cause.message : cause}`);
  }
}

export function sendJson(
  response: ServerResponse,
  status: number,
  value: object,
  headers: Record<string, string> = {},
): void {
  if (response.destroyed || response.headersSent) return;
  response.writeHead(status, { 'Content-Type': 'application/json', ...headers });
  response.end(JSON.stringify(value));
}

export function unknownResource(): ApiStatusError {
  return new ApiStatusError(404, 'the server could not find the requested resource', {});
}

function methodNotAllowed(): ApiStatusError {
  return new ApiStatusError(405, 'the server does not allow this method on the requested resource');
}

function ok(value: object): Answer {
  return { status: 200, body: value };
}

function served({ type, version }: ResourceRequest, object: KubeObject): KubeObject {
  return toServedVersion(type, object, version);
}

/** The body in the stored shape. */
function body({ type, version, logged }: ResourceRequest): JsonObject {
  if (!isJsonObject(logged.body)) throw badRequest('the body must be an object');
  const { apiVersion, kind } = logged.body;
  if (
    (apiVersion !== undefined && apiVersion !== apiVersionOf(type, version)) ||
    (kind !== undefined && kind !== type.kind)
  ) {
    throw badRequest(
      `the API version in the data (${apiVersion}, ${kind}) does not match the expected API version (${apiVersionOf(type, version)}, ${type.kind})`,
    );
  }
  return { ...toStoredVersion(type, logged.body, version), kind: type.kind };
}

function context({ path, query }: ResourceRequest, verb: WriteContext['verb']): WriteContext {
  return { verb, endpoint: path.subresource === 'status' ? 'status' : 'main', dryRun: query.get('dryRun') === 'All' };
}

function listObjects(store: ObjectStore, request: ResourceRequest): object {
  const { type, version, path, query } = request;
  const objects = store.list(type, path.namespace, selectorOf(request));
  const limit = Number(query.get('limit') ?? 0);
  const start = parseContinue(store, query.get('continue'));
  const page = limit > 0 ? objects.slice(start, start + limit) : objects.slice(start);
  const remaining = objects.length - start - page.length;
  const resourceVersion = String(store.resourceVersion);
  const items = page.map((object) => {
    const { apiVersion, kind, ...rest } = toServedVersion(type, object, version);
    return type.isCustom ? { apiVersion, kind, ...rest } : rest;
  });
  const more =
    remaining > 0
      ? { continue: formatContinue(start + page.length, resourceVersion), remainingItemCount: remaining }
      : {};
  return {
    kind: `${type.kind}List`,
    apiVersion: apiVersionOf(type, version),
    metadata: { resourceVersion, ...more },
    items,
  };
}

function formatContinue(start: number, resourceVersion: string): string {
  return Buffer.from(JSON.stringify({ start, resourceVersion })).toString('base64url');
}

/** The position in the list. The double pages over the list of now, not over that of the first page. */
function parseContinue(store: ObjectStore, token: string | null): number {
  if (token === null || token === '') return 0;
  const decoded: unknown = JSON.parse(Buffer.from(token, 'base64url').toString());
  if (Number(valueAt(decoded, 'resourceVersion')) < store.compactedVersion) {
    throw expired('The provided continue parameter is too old to display a consistent list result.');
  }
  return Number(valueAt(decoded, 'start'));
}

function patchObject(registry: Registry, request: ResourceRequest): Answer {
  const { type, version, path, logged } = request;
  const contentType = logged.contentType?.split(';')[0]?.trim() ?? '';
  const kind = patchTypes[contentType];
  if (kind === undefined) {
    const supported = Object.keys(patchTypes).join(', ');
    throw new ApiStatusError(
      415,
      `the body of the request was in an unknown format - accepted media types include: ${supported}`,
    );
  }
  const patch = isJsonObject(logged.body) ? toStoredVersion(type, logged.body, version) : (logged.body as Json);
  if (isJsonObject(patch)) delete patch.apiVersion;
  const patched = registry.patch(type, path.namespace, path.name ?? '', kind, patch, context(request, 'patch'));
  return ok(served(request, patched));
}

function deleteOptions({ type, logged, query }: ResourceRequest, object: KubeObject): DeleteOptions {
  const options = isJsonObject(logged.body) ? (logged.body as DeleteOptions) : {};
  const asked =
    options.gracePeriodSeconds ??
    (query.has('gracePeriodSeconds') ? Number(query.get('gracePeriodSeconds')) : undefined);
  const usual = type.kind === 'Pod' ? Number(valueAt(object, 'spec.terminationGracePeriodSeconds') ?? 30) : 0;
  return { ...options, gracePeriodSeconds: asked ?? usual };
}

function deleteObject(registry: Registry, request: ResourceRequest): Answer {
  const { type, path } = request;
  const name = path.name ?? '';
  const object = registry.get(type, path.namespace, name);
  const gone = registry.delete(type, path.namespace, name, deleteOptions(request, object));
  if (type.kind === 'Pod' || type.group === 'resource.k8s.io') return ok(served(request, gone));
  const details = {
    name,
    ...(type.group === '' ? {} : { group: type.group }),
    kind: type.plural,
    uid: gone.metadata.uid,
  };
  return ok({ kind: 'Status', apiVersion: 'v1', metadata: {}, status: 'Success', details });
}

function deleteCollection(registry: Registry, store: ObjectStore, request: ResourceRequest): Answer {
  const { type, path } = request;
  const list = listObjects(store, request);
  for (const object of store.list(type, path.namespace, selectorOf(request))) {
    registry.delete(type, object.metadata.namespace, object.metadata.name, deleteOptions(request, object));
  }
  return ok(list);
}
