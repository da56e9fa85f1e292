export { type ApiAccess, openApiAccess } from './api-access.ts';
export { servedVerbs } from './discovery.ts';
export {
  isKubeError,
  KubeError,
  type KubeErrorCode,
  namespaceTerminating,
  retryPauseMs,
  unless,
  unlessMissing,
} from './errors.ts';
export { FollowedList, type FollowedListOptions, firstAnswers, plainList } from './followed-list.ts';
export {
  type KubeApi,
  KubeClient,
  type KubeClientOptions,
  type KubeQuery,
  type KubeRequest,
  type KubeRequests,
  type WatchEvent,
} from './kube-client.ts';
export { listAll } from './list-all.ts';
export { ListWatch, type ListWatchOptions } from './list-watch.ts';
export { isPodWanted } from './pods.ts';
export { ResourceApi, type ResourceRequest } from './resource-api.ts';
export { type ResourceVersion, resourceVersions } from './resource-versions.ts';
export { hasServiceAccount } from './service-account.ts';
export type {
  AllocatedConfiguration,
  AllocatedDevice,
  AllocatedDeviceStatus,
  Condition,
  DeviceClass,
  DeviceReference,
  JsonPatchOperation,
  KubeList,
  ObjectMeta,
  OwnerReference,
  PodResources,
  ResourceClaim,
  StatusCondition,
} from './types.ts';
