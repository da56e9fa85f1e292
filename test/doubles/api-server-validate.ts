import { FieldErrors, isDnsSubdomain } from './api-server-field-errors.ts';
import type { ResourceType } from './api-server-resources.ts';
import type { FieldError } from './api-server-status.ts';
import { type JsonObject, jsonEqual, type KubeObject, valueAt } from './api-server-types.ts';
import { validateClaimSpec, validateClaimStatus } from './api-server-validate-claim.ts';
import { validateSlice } from './api-server-validate-slice.ts';

/** What the API server would refuse with 422, as far as netdra can run into it. @param before `undefined` on creation */
export function validateObject(type: ResourceType, before: KubeObject | undefined, after: KubeObject): FieldError[] {
  const errors = new FieldErrors();
  validateMetadata(errors, after);
  switch (type.kind) {
    case 'ResourceClaim':
      validateClaimSpec(errors, 'spec', after.spec);
      if (before !== undefined) requireUnchanged(errors, before, after, 'spec');
      validateClaimStatus(errors, before, after);
      break;
    case 'ResourceClaimTemplate':
      validateClaimSpec(errors, 'spec.spec', valueAt(after, 'spec.spec'));
      if (before !== undefined) requireUnchanged(errors, before, after, 'spec');
      break;
    case 'ResourceSlice':
      validateSlice(errors, after);
      for (const field of before === undefined ? [] : ['spec.driver', 'spec.nodeName', 'spec.pool.name']) {
        requireUnchanged(errors, before as KubeObject, after, field);
      }
      break;
    case 'Pod':
      validatePod(errors, after);
      break;
    case 'Event':
      if (type.group === 'events.k8s.io') validateNewEvent(errors, before, after as unknown as JsonObject);
      else validateEvent(errors, after as unknown as JsonObject);
      break;
  }
  return errors.list;
}

function validateMetadata(errors: FieldErrors, object: KubeObject): void {
  if (!isDnsSubdomain(object.metadata.name)) {
    const detail =
      "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
    errors.add('invalid', 'metadata.name', detail, object.metadata.name);
  }
}

function requireUnchanged(errors: FieldErrors, before: KubeObject, after: KubeObject, field: string): void {
  const value = valueAt(after, field);
  if (!jsonEqual(valueAt(before, field), value)) errors.add('invalid', field, 'field is immutable', value ?? null);
}

function validatePod(errors: FieldErrors, pod: KubeObject): void {
  const containers = valueAt(pod, 'spec.containers');
  if (!Array.isArray(containers) || containers.length === 0) {
    errors.add('required', 'spec.containers');
    return;
  }
  containers.forEach((container, index) => {
    errors.require(container, 'name', `spec.containers[${index}]`);
    errors.require(container, 'image', `spec.containers[${index}]`);
  });
}

function validateEvent(errors: FieldErrors, event: JsonObject): void {
  const eventNamespace = valueAt(event, 'metadata.namespace');
  const namespace = valueAt(event, 'involvedObject.namespace');
  // Events about objects without a namespace (nodes, slices) live in "default".
  const wanted = namespace === undefined || namespace === '' ? 'default' : namespace;
  if (eventNamespace !== wanted)
    errors.add('invalid', 'involvedObject.namespace', 'does not match event.namespace', namespace ?? '');
  if (event.eventTime === undefined || event.eventTime === null) return;
  for (const name of ['reportingComponent', 'reportingInstance', 'action', 'reason']) errors.require(event, name, '');
  if (event.type !== 'Normal' && event.type !== 'Warning') errors.add('invalid', 'type', '', event.type ?? '');
  if (typeof event.reason === 'string' && event.reason.length > 128)
    errors.add('invalid', 'reason', 'can have at most 128 characters');
  if (typeof event.message === 'string' && event.message.length > 1024)
    errors.add('invalid', 'message', 'can have at most 1024 characters');
}

/** Of events.k8s.io/v1. Source: kubernetes pkg/apis/core/validation/events.go, August 2026. */
function validateNewEvent(errors: FieldErrors, before: KubeObject | undefined, event: JsonObject): void {
  for (const name of ['eventTime', 'reportingController', 'reportingInstance', 'action', 'reason', 'regarding']) {
    errors.require(event, name, '');
  }
  const namespace = valueAt(event, 'regarding.namespace');
  const wanted = namespace === undefined || namespace === '' ? 'default' : namespace;
  if (valueAt(event, 'metadata.namespace') !== wanted)
    errors.add('invalid', 'involvedObject.namespace', 'does not match event.namespace', namespace ?? '');
  if (event.type !== 'Normal' && event.type !== 'Warning') errors.add('invalid', 'type', '', event.type ?? '');
  const limits = { note: 1024, reason: 128, action: 128, reportingInstance: 128 };
  for (const [field, limit] of Object.entries(limits)) {
    const value = event[field];
    if (typeof value === 'string' && Buffer.byteLength(value) > limit)
      errors.add('invalid', field, `can have at most ${limit} characters`);
  }
  const count = valueAt(event, 'series.count');
  if (event.series !== undefined && !(typeof count === 'number' && count >= 2))
    errors.add('invalid', 'series.count', 'should be at least 2', count ?? null);
  if (event.series !== undefined) errors.require(event.series, 'lastObservedTime', 'series');
  if (before === undefined) return;
  // Once made, an event changes in its series only.
  for (const field of ['regarding', 'related', 'reason', 'note', 'eventTime', 'action', 'type', 'reportingController'])
    requireUnchanged(errors, before, event as unknown as KubeObject, field);
}
