export { isKubeError, KubeError, type KubeErrorCode } from './errors.ts';
export { KubeClient, type KubeClientOptions, type KubeRequest, type WatchEvent } from './kube-client.ts';
export { hasServiceAccount, loadKubeConfig } from './kube-config.ts';
export { ResourceApi, type ResourceRequest } from './resource-api.ts';
export { type ResourceVersion, resourceVersions } from './resource-versions.ts';
export type { AllocatedDeviceStatus, Condition, KubeList, ObjectMeta, OwnerReference, ResourceClaim } from './types.ts';
